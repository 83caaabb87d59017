package orbit

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"
)

// Counter is a count or version in its canonical decimal form, 0…2^64−1 without sign, leading zero,
// fraction, exponent or space (R1.2). It is a plain string so that it can be stored and passed on as it
// came; "" means that it was not given.
type Counter = string

// ParseCounter returns the number, or an error unless c is in the canonical form.
func ParseCounter(c Counter) (uint64, error) {
	n, err := strconv.ParseUint(c, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != c {
		return 0, fmt.Errorf("orbit: %q is not a decimal string 0…18446744073709551615", c)
	}
	return n, nil
}

// newer reports whether counter a is greater than b; both are canonical.
func newer(a, b Counter) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

// NewID returns a fresh id: 32 lowercase hex characters holding UUIDv7 bits, so that ids made later sort
// later, to the millisecond (R1.1).
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b[:])
}

// NewKey returns a fresh idempotency key. Store it with the request before the first try and repeat both
// unchanged until an answer came: a new key for an old request is a new command (R3.2).
func NewKey() string { return randomHex() }

// randomHex is 128 random bits as 32 lowercase hex characters.
func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isKey(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

// Secret proves a lease. Formatting and logging hide it; encoding/json writes it, so that a [Proof] can be
// saved and reported again.
type Secret string

// Format writes "[secret]" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret]") }

// LogValue hides the secret from log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// Ptr returns a pointer to v, for the optional members of requests.
func Ptr[T any](v T) *T { return &v }
