package rivals

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

const topic = "events"

type watermillBroker struct {
	db  *sql.DB
	sub *wsql.Subscriber
	in  <-chan *message.Message
	one *wsql.Publisher
}

func openWatermill(batch int, poll time.Duration) func(context.Context, Host) (Broker, error) {
	return func(ctx context.Context, h Host) (Broker, error) {
		db, err := openDB(h)
		if err != nil {
			return nil, err
		}
		b := &watermillBroker{db: db}
		schema := wsql.DefaultMySQLSchema{SubscribeBatchSize: batch}
		b.sub, err = wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
			ConsumerGroup: "bench", SchemaAdapter: schema, OffsetsAdapter: wsql.DefaultMySQLOffsetsAdapter{}, PollInterval: poll, InitializeSchema: true,
		}, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		if err := b.sub.SubscribeInitialize(topic); err != nil {
			return nil, err
		}
		b.one, err = wsql.NewPublisher(wsql.BeginnerFromStdSQL(db), wsql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
		return b, err
	}
}

func (b *watermillBroker) Publish(ctx context.Context, n int, payload []byte) error {
	const each = 100
	var left atomic.Int64
	left.Store(int64(n))
	return shared(8, func() error {
		for {
			take := min(int(left.Add(-each))+each, each)
			if take <= 0 {
				return nil
			}
			messages := make([]*message.Message, take)
			for i := range messages {
				messages[i] = message.NewMessage(watermill.NewUUID(), payload)
			}
			if err := b.one.Publish(topic, messages...); err != nil { // one INSERT, one transaction
				return err
			}
		}
	})
}

func (b *watermillBroker) PublishOne(_ context.Context, payload []byte) error {
	return b.one.Publish(topic, message.NewMessage(watermill.NewUUID(), payload))
}

func (b *watermillBroker) Consume(ctx context.Context, n int, seen func([]byte)) error {
	if b.in == nil {
		in, err := b.sub.Subscribe(context.WithoutCancel(ctx), topic)
		if err != nil {
			return err
		}
		b.in = in
	}
	for range n {
		select {
		case m := <-b.in:
			seen(m.Payload)
			m.Ack()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *watermillBroker) Close() error {
	if err := b.sub.Close(); err != nil {
		return err
	}
	return b.db.Close()
}
