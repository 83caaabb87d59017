package rivals

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStreamBroker is a NATS server in this process, reached over TCP.
type jetStreamBroker struct {
	server   *server.Server
	conn     *nats.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
}

func openJetStream(ctx context.Context, h Host) (Broker, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: h.Dir, SyncAlways: true, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return nil, errors.New("the NATS server did not start")
	}
	b := &jetStreamBroker{server: s}
	if b.conn, err = nats.Connect(s.ClientURL()); err != nil {
		return nil, err
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		return nil, err
	}
	stream, err := b.js.CreateStream(ctx, jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events"}, Storage: jetstream.FileStorage})
	if err != nil {
		return nil, err
	}
	b.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000})
	return b, err
}

func (b *jetStreamBroker) Publish(ctx context.Context, n int, payload []byte) error {
	var left atomic.Int64
	left.Store(int64(n))
	return shared(8, func() error {
		for left.Add(-1) >= 0 {
			if _, err := b.js.Publish(ctx, "events", payload); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *jetStreamBroker) PublishOne(ctx context.Context, payload []byte) error {
	_, err := b.js.Publish(ctx, "events", payload)
	return err
}

func (b *jetStreamBroker) Consume(ctx context.Context, n int, seen func([]byte)) error {
	var left atomic.Int64
	left.Store(int64(n))
	return shared(4, func() error {
		for left.Load() > 0 {
			batch, err := b.consumer.Fetch(64, jetstream.FetchMaxWait(20*time.Millisecond))
			if err != nil {
				return err
			}
			for m := range batch.Messages() {
				seen(m.Data())
				if err := m.DoubleAck(ctx); err != nil {
					return err
				}
				left.Add(-1)
			}
			if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
}

func (b *jetStreamBroker) Close() error {
	b.conn.Close()
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return nil
}
