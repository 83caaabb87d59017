package orbit

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// object builds a JSON object whose raw members keep their text byte for byte (R1.5): encoding/json would
// compact and escape a RawMessage.
type object []byte

// put appends a member; value is a string, number, bool, map of strings or a plain struct of those.
func (o *object) put(name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("orbit: " + err.Error()) // such values always marshal
	}
	o.raw(name, text)
}

// raw appends a member as it is; the caller has checked it with checkRaw.
func (o *object) raw(name string, text json.RawMessage) {
	if len(*o) == 0 {
		*o = append(*o, '{')
	} else {
		*o = append(*o, ',')
	}
	*o = append(*o, '"')
	*o = append(*o, name...)
	*o = append(*o, '"', ':')
	*o = append(*o, text...)
}

// time appends a time as RFC 3339 in UTC.
func (o *object) time(name string, t time.Time) { o.put(name, t.UTC().Format(time.RFC3339Nano)) }

// done closes the object.
func (o *object) done() []byte {
	if len(*o) == 0 {
		return []byte("{}")
	}
	return append(*o, '}')
}

// checkRaw refuses text that is not one JSON value in valid UTF-8: spliced into a request it would
// change the request.
func checkRaw(name string, text json.RawMessage) error {
	if !json.Valid(text) || !utf8.Valid(text) {
		return invalid("%s: is not valid JSON in UTF-8", name)
	}
	return nil
}
