package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// A cursor is the base64url of a version, a position and a MAC. The MAC covers the position and what
// the list was asked for (endpoint, namespace, credential, parent, filter), so a cursor continues
// that list and no other. Its key comes from the namespace's id, which no answer shows, and its
// log's generation: replicas agree without configuration, and a restore voids old cursors.
const (
	cursorVersion = 1
	positionSize  = 8 + 16 + 8
	macSize       = 16
	cursorSize    = 1 + positionSize + macSize
)

var cursorEncoding = base64.RawURLEncoding.Strict()

// listing is what a cursor is bound to.
type listing struct {
	namespace  ids.ID
	generation ids.ID
	credential ids.ID
	scope      string // the endpoint, its parent and its filter
}

// scopeOf joins an endpoint's name with the ids and filters of the request; none holds a zero byte.
func scopeOf(parts ...string) string { return strings.Join(parts, "\x00") }

// encode writes a cursor that continues after a position.
func (l listing) encode(p store.Position) string {
	b := make([]byte, 0, cursorSize)
	b = append(b, cursorVersion)
	var micros int64
	if !p.CreatedAt.IsZero() {
		micros = p.CreatedAt.UnixMicro()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(micros))
	b = append(b, p.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, p.Sequence)
	return cursorEncoding.EncodeToString(append(b, l.mac(b)...))
}

// decode returns the position of a cursor that this listing's encode wrote, else INVALID_ARGUMENT.
func (l listing) decode(text string) (store.Position, error) {
	refused := errs.Invalid("cursor", "is not one that this list gave out for this credential, parent and filter")
	if len(text) != cursorEncoding.EncodedLen(cursorSize) || strings.ContainsAny(text, "\r\n") {
		return store.Position{}, refused
	}
	b, err := cursorEncoding.DecodeString(text)
	if err != nil || len(b) != cursorSize || b[0] != cursorVersion {
		return store.Position{}, refused
	}
	payload, mac := b[:1+positionSize], b[1+positionSize:]
	if !hmac.Equal(mac, l.mac(payload)) {
		return store.Position{}, refused
	}
	p := store.Position{ID: ids.ID(payload[9:25]), Sequence: binary.BigEndian.Uint64(payload[25:])}
	if micros := int64(binary.BigEndian.Uint64(payload[1:9])); micros != 0 {
		p.CreatedAt = time.UnixMicro(micros).UTC()
	}
	return p, nil
}

func (l listing) mac(payload []byte) []byte {
	key := sha256.Sum256(append(append([]byte("orbit list cursor\x00"), l.namespace[:]...), l.generation[:]...))
	h := hmac.New(sha256.New, key[:])
	h.Write(l.credential[:])
	h.Write(payload) // of a fixed length, so what follows is unambiguous
	h.Write([]byte(l.scope))
	return h.Sum(nil)[:macSize]
}

// page reads limit and cursor of a list request.
func (a *API) page(ctx context.Context, c *call, scope string) (store.Page, error) {
	limit, err := limitOf(c.query)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Limit: limit}
	text, given := c.query["cursor"]
	if !given {
		return page, nil
	}
	l, err := a.listing(ctx, c, scope)
	if err != nil {
		return store.Page{}, err
	}
	after, err := l.decode(text)
	page.After = &after
	return page, err
}

// next writes the cursor of the following page, "" for none.
func (a *API) next(ctx context.Context, c *call, scope string, p *store.Position) (string, error) {
	if p == nil {
		return "", nil
	}
	l, err := a.listing(ctx, c, scope)
	if err != nil {
		return "", err
	}
	return l.encode(*p), nil
}

func (a *API) listing(ctx context.Context, c *call, scope string) (listing, error) {
	generation, err := a.store.Generation(ctx, c.caller.NamespaceID)
	return listing{c.caller.NamespaceID, generation, c.caller.CredentialID, scope}, err
}
