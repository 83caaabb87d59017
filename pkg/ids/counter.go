package ids

import (
	"fmt"
	"strconv"
)

// Counter is a count or version that can pass 2^53; on the wire it is a canonical decimal string,
// 0…2^64−1 without sign, leading zero, fraction, exponent or space (R1.2).
type Counter uint64

// ParseCounter accepts only the canonical form.
func ParseCounter(s string) (Counter, error) {
	if s == "" || len(s) > 20 || (len(s) > 1 && s[0] == '0') {
		return 0, fmt.Errorf("must be a decimal string 0…18446744073709551615 without sign or leading zero")
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("must be a decimal string 0…18446744073709551615 without sign or leading zero")
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("must be at most 18446744073709551615")
	}
	return Counter(n), nil
}

func (c Counter) String() string { return strconv.FormatUint(uint64(c), 10) }

// MarshalText writes the decimal string.
func (c Counter) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(c), 10), nil }

// UnmarshalText accepts what ParseCounter accepts.
func (c *Counter) UnmarshalText(text []byte) error {
	parsed, err := ParseCounter(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}
