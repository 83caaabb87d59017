package httpserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRunAnswersWhatIsInFlightWhenItStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	entered, release := make(chan struct{}), make(chan struct{})
	url, done := start(t, ctx, Options{}, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		if r.Context().Err() != nil {
			t.Error("the request was cancelled by the stop")
		}
		_, _ = io.WriteString(w, "done")
	})
	answered := make(chan string, 1)
	go func() { answered <- get(url) }()
	<-entered
	stop()
	waitRefused(t, url)
	close(release)
	if got := <-answered; got != "200 done" {
		t.Errorf("in flight: %q", got)
	}
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRunCutsOffAfterTheGrace(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	url, done := start(t, ctx, Options{Grace: 20 * time.Millisecond}, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	})
	go get(url)
	<-entered
	stop()
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run: %v", err)
	}
}

func TestRunReportsALostListener(t *testing.T) {
	t.Parallel()
	l := listen(t)
	_ = l.Close()
	if err := Run(context.Background(), l, http.NotFoundHandler(), Options{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run: %v", err)
	}
}

func TestListenNamesTheAddress(t *testing.T) {
	t.Parallel()
	taken := listen(t)
	if _, err := Listen(context.Background(), taken.Addr().String()); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("Listen: %v", err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var fault error
	h := NewHealth(ctx, func(context.Context) error { return fault })
	mux := http.NewServeMux()
	h.Register(mux)
	steps := []struct {
		name, path, want string
		before           func()
		status           int
	}{
		{"live", "/livez", `{"status":"live"}`, func() {}, 200},
		{"ready", "/readyz", `{"status":"ready"}`, func() {}, 200},
		{"database away", "/readyz", `{"status":"not ready"}`, func() { fault = errors.New("password=x refused") }, 503},
		{"still live", "/livez", `{"status":"live"}`, func() {}, 200},
		{"back", "/readyz", `{"status":"ready"}`, func() { fault = nil }, 200},
		{"stopping", "/readyz", `{"status":"stopping"}`, stop, 503},
	}
	for _, s := range steps {
		s.before()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", s.path, nil))
		if w.Code != s.status || strings.TrimSpace(w.Body.String()) != s.want {
			t.Errorf("%s: %d %s", s.name, w.Code, w.Body)
		}
		if retry := w.Header().Get("Retry-After"); (retry != "") != (s.status == 503) {
			t.Errorf("%s: Retry-After %q", s.name, retry)
		}
	}
}

func TestReadyDoesNotWaitForAStuckCheck(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	h := NewHealth(context.Background(), func(context.Context) error { <-release; return nil })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	h.Ready(w, httptest.NewRequest("GET", "/readyz", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d", w.Code)
	}
}

func start(t *testing.T, ctx context.Context, o Options, h http.HandlerFunc) (url string, done <-chan error) {
	l := listen(t)
	result := make(chan error, 1)
	go func() { result <- Run(ctx, l, h, o) }()
	return "http://" + l.Addr().String(), result
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func get(url string) string {
	res, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return strings.TrimSuffix(res.Status, " OK") + " " + string(body)
}

// waitRefused returns once the server takes no new connection.
func waitRefused(t *testing.T, url string) {
	t.Helper()
	for range 1000 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return
		}
		_ = conn.Close()
		time.Sleep(time.Millisecond)
	}
	t.Fatal("still accepting")
}
