// Package strictjson is the one decoder for everything clients send (R1.5): unknown members, other
// spellings, duplicate keys at any depth, trailing data, invalid UTF-8 and wrong types are refused,
// and business JSON is kept as the original text.
package strictjson

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Raw is business JSON exactly as it was sent, already known to be well formed and without
// duplicate keys at any depth.
type Raw = jsontext.Value

// noNull refuses null for a plain value; a field that may be null is a pointer or a slice.
func noNull[T any](dec *jsontext.Decoder, _ *T) error {
	if dec.PeekKind() == 'n' {
		return errors.New("must not be null")
	}
	return errors.ErrUnsupported
}

var options = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(noNull[string]),
		json.UnmarshalFromFunc(noNull[bool]),
		json.UnmarshalFromFunc(noNull[int]),
		json.UnmarshalFromFunc(noNull[ids.ID]),
		json.UnmarshalFromFunc(noNull[ids.Counter]),
		json.UnmarshalFromFunc(noNull[ids.Secret]),
	)),
)

// Decode reads one JSON object into v. Every failure is INVALID_ARGUMENT naming the member; values
// sent by the client are not repeated, since they may be secrets.
func Decode(data []byte, v any) error { return decode(data, v, options) }

// DecodeEnvelope is Decode for a value whose member "body" is Raw and is judged on its own: a
// duplicate key inside it comes back as bodyErr while the rest of the envelope is still read.
func DecodeEnvelope(data []byte, v any) (bodyErr, err error) {
	err = decode(data, v, options)
	if err == nil || !strings.HasPrefix(errs.MessageOf(err), "body.") {
		return nil, err
	}
	return err, decode(data, v, json.JoinOptions(options, jsontext.AllowDuplicateNames(true)))
}

func decode(data []byte, v any, options json.Options) error {
	if kind := jsontext.Value(data).Kind(); kind != '{' && kind != jsontext.KindInvalid {
		return errs.Invalid("body", "must be a JSON object")
	}
	err := json.Unmarshal(data, v, options)
	if err == nil {
		return nil
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return errs.Invalid(fieldOf(semantic.JSONPointer), "%s", reason(semantic))
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return errs.Invalid(fieldOf(syntactic.JSONPointer), "appears twice")
		}
		return errs.Invalid(fieldOf(syntactic.JSONPointer), "malformed JSON at byte %d", syntactic.ByteOffset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.Invalid("body", "JSON ends too early")
	}
	return errs.Wrap(errs.InvalidArgument, err, "body: malformed JSON")
}

func reason(e *json.SemanticError) string {
	switch {
	case errors.Is(e, json.ErrUnknownName):
		return "unknown member"
	case errors.Is(e, strconv.ErrSyntax):
		return "must be a whole number"
	case errors.Is(e, strconv.ErrRange):
		return "is out of range"
	case e.Err != nil:
		return e.Err.Error()
	}
	return "wrong type"
}

// fieldOf turns the JSON Pointer /acks/0/epoch into acks.0.epoch.
func fieldOf(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if b.Len()+len(token) > 200 { // a hostile name must not become a long log line
			b.WriteString("…")
			break
		}
		b.WriteString(strings.ToValidUTF8(token, "?"))
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}
