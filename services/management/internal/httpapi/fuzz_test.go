package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// FuzzStrictDecode: what is accepted is one UTF-8 object that a common parser accepts too, with its
// input byte for byte; a refusal is INVALID_ARGUMENT with a message that can be shown.
func FuzzStrictDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"queue_id":"11111111111111111111111111111111","input":{"a":1e400},"max_attempts":3}`, `{"input":1,"input":2}`,
		`{"Input":1}`, `{"input":{"a":{"b":1,"b":2}}}`, `{"input":"\ud800"}`, "{\"input\":\"\xff\"}", `{"input":null} `, `{"input":1}x`, `[]`, `null`,
		`{"priority":1.0}`, `{"priority":99999999999999999999}`, `{"run_at":"2026-09-17T10:00:00Z"}`, `{"labels":{"a":"b"}}`, `{"retry_safety":null}`, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var body task.Submit
		if err := strictjson.Decode(data, &body); err != nil {
			if !errs.Is(err, errs.InvalidArgument) || errs.MessageOf(err) == "" || !utf8.ValidString(errs.MessageOf(err)) {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if !utf8.Valid(data) || !json.Valid(data) || bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
			t.Fatalf("accepts %q", data)
		}
		if body.Input != nil && !bytes.Contains(data, body.Input) {
			t.Fatalf("input of %q became %q", data, body.Input)
		}
		_ = body.Normalise()
	})
}

// FuzzCounter: only the canonical spelling is accepted.
func FuzzCounter(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "00", "01", "-1", "+1", "1.0", "1e2", " 1", "18446744073709551615", "18446744073709551616", "99999999999999999999", "١"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := ids.ParseCounter(s); err == nil && c.String() != s {
			t.Fatalf("%q is read as %s", s, c)
		}
	})
}

// FuzzSecret: only the canonical 43 characters are accepted.
func FuzzSecret(f *testing.F) {
	zero := strings.Repeat("A", 43)
	for _, seed := range []string{"", zero, zero[1:], zero + "A", zero[1:] + "B", zero[1:] + "=", zero[1:] + "\n", zero[2:] + "+/", zero[2:] + "-_"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if secret, err := ids.ParseSecret(s); err == nil && secret.Text() != s {
			t.Fatalf("%q is read as %q", s, secret.Text())
		}
	})
}

// FuzzToken: what is accepted is what FormatToken writes.
func FuzzToken(f *testing.F) {
	good := access.FormatToken(ids.ID{1}, ids.Secret{})
	for _, seed := range []string{"", good, strings.ToUpper(good), good + "A", good[1:], strings.Replace(good, "_", "-", 1), " " + good} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, secret, err := access.ParseToken(s); err == nil && access.FormatToken(id, secret) != s {
			t.Fatalf("accepts %q", s)
		}
	})
}

// FuzzCursor: what is accepted is what encode writes.
func FuzzCursor(f *testing.F) {
	good := someListing().encode(store.Position{ID: ids.ID{9}, Sequence: 7})
	for _, seed := range []string{"", good, good[1:], good + "A", strings.ToLower(good), good[:len(good)-1] + "_", good + "\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := someListing().decode(s)
		if err == nil && someListing().encode(p) != s {
			t.Fatalf("accepts %q as %+v", s, p)
		}
		if err != nil && !errs.Is(err, errs.InvalidArgument) {
			t.Fatal(err)
		}
	})
}

// FuzzIdempotencyKey: an accepted key has only the contract's characters.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "a", "A.b_c:d-9", strings.Repeat("k", 128), strings.Repeat("k", 129), "a b", "a\n", "é", "a,b", "\x00"} {
		f.Add(seed)
	}
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
	f.Fuzz(func(t *testing.T, s string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {s}})
		good := len(s) >= 1 && len(s) <= 128 && strings.Trim(s, allowed) == ""
		if good != (err == nil) || good && key != s {
			t.Fatalf("%q: %q, %v", s, key, err)
		}
	})
}
