package orbittest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// decode reads an object strictly (R1.5), business JSON inside it included.
func decode(body []byte, v any) error {
	if !utf8.Valid(body) {
		return refuse(orbit.ErrInvalidArgument, "body: is not valid UTF-8")
	}
	if name := repeated(body); name != "" {
		return refuse(orbit.ErrInvalidArgument, "body: the member %q is repeated", name)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(orbit.ErrInvalidArgument, "body: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return refuse(orbit.ErrInvalidArgument, "body: something follows the object")
	}
	return nil
}

// repeated names a key that an object at any depth has twice, or "".
func repeated(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	type level struct {
		object, atValue bool
		keys            map[string]bool
	}
	var stack []level
	for {
		token, err := d.Token()
		if err != nil {
			return "" // the end, or malformed, which Decode reports
		}
		top := len(stack) - 1
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:top]
			continue
		}
		if top >= 0 && stack[top].object && !stack[top].atValue {
			key := fmt.Sprint(token)
			if stack[top].keys[key] {
				return key
			}
			stack[top].keys[key], stack[top].atValue = true, true
			continue
		}
		if top >= 0 {
			stack[top].atValue = false
		}
		if delim, ok := token.(json.Delim); ok {
			stack = append(stack, level{object: delim == '{', keys: map[string]bool{}})
		}
	}
}

func checkName(field, name string) error {
	if !nameForm.MatchString(name) {
		return refuse(orbit.ErrInvalidArgument, "%s: must be 1…128 of letters, digits, '.', '_' and '-', first a letter or digit", field)
	}
	return nil
}

func checkReason(reason string) error {
	if n := utf8.RuneCountInString(reason); n < 1 || n > 1024 {
		return refuse(orbit.ErrInvalidArgument, "reason: must be 1…1024 characters")
	}
	return nil
}

func checkCounter(field string, c *orbit.Counter) error {
	if c == nil {
		return refuse(orbit.ErrInvalidArgument, "%s: is required", field)
	}
	if _, err := orbit.ParseCounter(*c); err != nil {
		return refuse(orbit.ErrInvalidArgument, "%s: must be a decimal string 0…18446744073709551615", field)
	}
	return nil
}

func checkRange(field string, n, low, high int) error {
	if n < low || n > high {
		return refuse(orbit.ErrInvalidArgument, "%s: must be %d…%d, is %d", field, low, high, n)
	}
	return nil
}

func checkRevision(kind, id string, have orbit.Counter, want *orbit.Counter) error {
	if have != *want {
		return refuse(orbit.ErrStateConflict, "%s %s is at revision %s, expected_revision is %s", kind, id, have, *want)
	}
	return nil
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// note audits a write.
func (f *Fake) note(r *request, action, id string, detail any) {
	kind, _, _ := strings.Cut(action, ".")
	e := orbit.AuditEntry{ID: orbit.NewID(), At: now(), CredentialID: f.credentialID, Action: action, ResourceKind: kind, ResourceID: id, RequestID: r.id}
	if detail != nil {
		e.Detail = encode(detail)
	}
	f.state.audit = append(f.state.audit, e)
}

func (f *Fake) listAudit(r *request) ([]byte, error) {
	return page(r, "audit", reversed(f.state.audit), func(e orbit.AuditEntry) []byte { return encode(e) })
}

// reversed is a list with the newest first.
func reversed[T any](items []T) []T {
	out := make([]T, len(items))
	for i, item := range items {
		out[len(items)-1-i] = item
	}
	return out
}
