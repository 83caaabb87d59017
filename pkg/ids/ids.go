// Package ids holds the contract's scalar values (§1): 128-bit ids, canonical decimal counters and
// lease secrets, each with the one spelling that is accepted.
package ids

import (
	"crypto/rand"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// ID is 128 bits, written as 32 lowercase hex characters and stored as BINARY(16) (R1.1).
type ID [16]byte

// New returns a fresh time-ordered id (UUIDv7 bits). Ids made by one process are strictly increasing.
func New() ID { return ID(uuid.Must(uuid.NewV7())) }

// NewNumbered returns a fresh time-ordered id that carries n, so that what it names can be looked up by n.
// Two made by one process differ also where n is the same.
func NewNumbered(n uint64) ID {
	id := New()
	binary.BigEndian.PutUint64(id[8:], n) // the clock and its sub-millisecond count stay
	return id
}

// Number is what NewNumbered put in.
func (id ID) Number() uint64 { return binary.BigEndian.Uint64(id[8:]) }

// ParseID accepts exactly 32 lowercase hex characters.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 32 {
		return id, fmt.Errorf("must be 32 lowercase hex characters, has %d", len(s))
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, fmt.Errorf("must be 32 lowercase hex characters")
		}
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText writes the 32 hex characters.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText accepts what ParseID accepts.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Value stores the 16 bytes.
func (id ID) Value() (driver.Value, error) { return id[:], nil }

// Scan reads 16 bytes.
func (id *ID) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok || len(b) != len(id) {
		return fmt.Errorf("scan id: want 16 bytes, got %T of %d", src, len(b))
	}
	copy(id[:], b)
	return nil
}

// Secret is 32 random bytes that prove a lease or a credential; its text is 43 characters of
// unpadded base64url and only its SHA-256 is ever stored (R1.4).
type Secret [32]byte

// NewSecret draws from the system's random source.
func NewSecret() Secret {
	var s Secret
	_, _ = rand.Read(s[:]) // crypto/rand.Read never returns an error
	return s
}

var secretEncoding = base64.RawURLEncoding.Strict()

// ParseSecret accepts only the canonical 43 characters: no padding, no other alphabet, no stray bits.
func ParseSecret(text string) (Secret, error) {
	var s Secret
	if len(text) != 43 {
		return s, fmt.Errorf("must be 43 characters of unpadded base64url")
	}
	for i := range len(text) { // the decoder skips line breaks, so refuse them here
		if text[i] == '\r' || text[i] == '\n' {
			return s, fmt.Errorf("must be 43 characters of unpadded base64url")
		}
	}
	if n, err := secretEncoding.Decode(s[:], []byte(text)); err != nil || n != len(s) {
		return Secret{}, fmt.Errorf("must be 43 characters of unpadded base64url")
	}
	return s, nil
}

// Text is the wire form. It must not reach a log; String and formatting hide it.
func (s Secret) Text() string { return secretEncoding.EncodeToString(s[:]) }

func (s Secret) String() string { return "[secret]" }

// GoString hides the secret from %#v as well.
func (s Secret) GoString() string { return "[secret]" }

// MarshalText writes the wire form.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.Text()), nil }

// UnmarshalText accepts what ParseSecret accepts.
func (s *Secret) UnmarshalText(text []byte) error {
	parsed, err := ParseSecret(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Digest is the SHA-256 that is stored.
func (s Secret) Digest() [32]byte { return sha256.Sum256(s[:]) }
