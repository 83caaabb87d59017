package httpapi

import (
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

func someListing() listing {
	return listing{namespace: ids.ID{1}, generation: ids.ID{2}, credential: ids.ID{3}, scope: scopeOf("deliveries", "x", "ACKED")}
}

func TestCursorRoundTrip(t *testing.T) {
	t.Parallel()
	l := someListing()
	for _, p := range []store.Position{
		{},
		{CreatedAt: time.Date(2026, 9, 17, 10, 0, 0, 123456000, time.UTC), ID: ids.New()},
		{Sequence: 1<<64 - 1},
	} {
		text := l.encode(p)
		got, err := l.decode(text)
		if err != nil || !got.CreatedAt.Equal(p.CreatedAt) || got.ID != p.ID || got.Sequence != p.Sequence {
			t.Errorf("%+v became %+v, %v", p, got, err)
		}
		if again := someListing().encode(p); again != text {
			t.Errorf("two replicas write %s and %s", text, again)
		}
	}
}

// TestCursorIsBoundAndTamperEvident: no other listing takes it, and no changed byte passes.
func TestCursorIsBoundAndTamperEvident(t *testing.T) {
	t.Parallel()
	text := someListing().encode(store.Position{ID: ids.ID{9}, Sequence: 7})
	for name, change := range map[string]func(l *listing){
		"namespace":  func(l *listing) { l.namespace[15]++ },
		"generation": func(l *listing) { l.generation[15]++ },
		"credential": func(l *listing) { l.credential[15]++ },
		"endpoint":   func(l *listing) { l.scope = scopeOf("audit") },
		"parent":     func(l *listing) { l.scope = scopeOf("deliveries", "y", "ACKED") },
		"filter":     func(l *listing) { l.scope = scopeOf("deliveries", "x", "") },
		"no filter":  func(l *listing) { l.scope = scopeOf("deliveries", "x") },
	} {
		other := someListing()
		change(&other)
		if _, err := other.decode(text); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for i := range text {
		for _, c := range []byte("AZaz09-_=+/. \n") {
			if text[i] == c {
				continue
			}
			changed := text[:i] + string(c) + text[i+1:]
			if _, err := someListing().decode(changed); !errs.Is(err, errs.InvalidArgument) {
				t.Errorf("accepts %q", changed)
			}
		}
	}
	for _, other := range []string{"", text[1:], text + "A", text + "=", text[:len(text)-1], " " + text, text + "\n"} {
		if _, err := someListing().decode(other); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("accepts %q", other)
		}
	}
}
