package ids

import (
	"fmt"
	"unicode/utf8"
)

// CheckName accepts 1–128 ASCII characters: first a letter or digit, then letters, digits, '.', '_'
// or '-' (R1.6).
func CheckName(s string) error {
	if s == "" {
		return fmt.Errorf("is required")
	}
	if len(s) > 128 {
		return fmt.Errorf("must be at most 128 characters, has %d", len(s))
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return fmt.Errorf("must begin with an ASCII letter or digit, followed by letters, digits, '.', '_' or '-'")
		}
	}
	return nil
}

// CheckText accepts 1–limit Unicode characters of valid UTF-8.
func CheckText(s string, limit int) error {
	if s == "" {
		return fmt.Errorf("is required")
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("must be valid UTF-8")
	}
	if n := utf8.RuneCountInString(s); n > limit {
		return fmt.Errorf("must be at most %d characters, has %d", limit, n)
	}
	return nil
}
