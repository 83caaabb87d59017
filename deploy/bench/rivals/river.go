package rivals

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River is River on a private PostgreSQL, both with default settings.
type River struct {
	postgres *exec.Cmd
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx]
	done     <-chan *river.Event
}

type noop struct {
	Payload string `json:"payload"`
}

func (noop) Kind() string { return "noop" }

type worker struct{ river.WorkerDefaults[noop] }

func (worker) Work(context.Context, *river.Job[noop]) error { return nil }

// PostgreSQL is the folder of an installed PostgreSQL's programs, "" when there is none.
func PostgreSQL() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// OpenRiver starts PostgreSQL in dir and prepares a client that works up to 1000 jobs at once.
func OpenRiver(ctx context.Context, dir string) (*River, error) {
	r := &River{}
	dsn, err := r.startPostgreSQL(ctx, dir)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if r.pool, err = pgxpool.New(ctx, dsn); err == nil {
			err = r.pool.Ping(ctx)
		}
		if err == nil {
			break
		}
		if try == 100 {
			return nil, fmt.Errorf("PostgreSQL did not start: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	r.done, _ = r.client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 1 << 20})
	return r, nil
}

// startPostgreSQL runs as the packaged user when we are root, which PostgreSQL refuses to be.
func (r *River) startPostgreSQL(ctx context.Context, dir string) (string, error) {
	as := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return "", err
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			return "", err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return "", err
	}
	bin, data := PostgreSQL(), filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C")
	initdb.Dir, initdb.SysProcAttr = dir, as
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	r.postgres = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-k", dir) //nolint:gosec // the installed server
	r.postgres.Dir, r.postgres.SysProcAttr = dir, as
	if err := r.postgres.Start(); err != nil {
		return "", err
	}
	return fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?pool_max_conns=32", port), nil
}

// Insert adds n jobs, 100 a transaction, from one client.
func (r *River) Insert(ctx context.Context, n int, payload []byte) error {
	for n > 0 {
		batch := make([]river.InsertManyParams, min(n, 100))
		for i := range batch {
			batch[i] = river.InsertManyParams{Args: noop{Payload: string(payload)}}
		}
		if _, err := r.client.InsertMany(ctx, batch); err != nil {
			return err
		}
		n -= len(batch)
	}
	return nil
}

// Work runs jobs until n more are completed, as PostgreSQL has recorded.
func (r *River) Work(ctx context.Context, n int) error {
	if err := r.client.Start(ctx); err != nil {
		return err
	}
	for range n {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.client.Stop(ctx)
}

// Close ends the client and the server.
func (r *River) Close() error {
	r.pool.Close()
	if err := r.postgres.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	return r.postgres.Wait()
}
