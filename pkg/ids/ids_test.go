package ids

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	good := "0123456789abcdef0123456789abcdef"
	for text, ok := range map[string]bool{
		good: true, strings.Repeat("f", 32): true, good[:31]: false, good + "0": false, strings.ToUpper(good): false,
		"g" + good[1:]: false, " " + good[1:]: false, "": false, strings.Repeat("é", 16): false,
	} {
		id, err := ParseID(text)
		if (err == nil) != ok || ok && id.String() != text {
			t.Errorf("%q: %v, %v", text, id, err)
		}
	}
}

func TestNewIDsGrow(t *testing.T) {
	t.Parallel()
	last := New()
	for range 10_000 {
		next := New()
		if next.String() <= last.String() {
			t.Fatalf("%s after %s", next, last)
		}
		last = next
	}
}

func TestParseCounter(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"0": true, "1": true, "9007199254740993": true, "18446744073709551614": true, "18446744073709551615": true,
		"18446744073709551616": false, "99999999999999999999": false, "": false, "00": false, "01": false, "+1": false, "-1": false,
		"1.0": false, "1e3": false, " 1": false, "1 ": false, "1\n": false, "١": false, "0x1": false, "1_000": false,
	} {
		c, err := ParseCounter(text)
		if (err == nil) != ok || ok && c.String() != text {
			t.Errorf("%q: %v, %v", text, c, err)
		}
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	zero := strings.Repeat("A", 43)
	for text, ok := range map[string]bool{
		zero: true, zero[:42]: false, zero + "A": false, zero + "=": false, zero[:42] + "=": false, zero[:42] + "B": false, // stray bits
		"+" + zero[1:]: false, "/" + zero[1:]: false, "-" + zero[1:]: true, "_" + zero[1:]: true, zero[:42] + "\n": false, "": false,
	} {
		s, err := ParseSecret(text)
		if (err == nil) != ok || ok && s.Text() != text {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	s := NewSecret()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, struct{ S Secret }{s}); strings.Contains(got, s.Text()) || !strings.Contains(got, "[secret]") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"a": true, "A": true, "0": true, "a.b_c-d": true, strings.Repeat("a", 127): true, strings.Repeat("a", 128): true,
		strings.Repeat("a", 129): false, "": false, ".a": false, "_a": false, "-a": false, "a b": false, "x ": false, "é": false, "a\n": false, "a/b": false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"": false, "a": true, strings.Repeat("é", 9): true, strings.Repeat("é", 10): true, strings.Repeat("é", 11): false, "\xff": false,
	} {
		if err := CheckText(text, 10); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
