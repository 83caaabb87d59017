package orbit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// get reads one resource or list into out.
func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, call{method: http.MethodGet, path: path, query: query}, out)
}

// post sends a write under an idempotency key.
func (c *Client) post(ctx context.Context, path, key string, body []byte, out any) error {
	if !isKey(key) {
		return invalid("idempotency key: must be 1–128 of A–Z a–z 0–9 . _ : -")
	}
	return c.call(ctx, call{method: http.MethodPost, path: path, key: key, body: body}, out)
}

// call is one request, the same at every try.
type call struct {
	method string
	path   string
	query  url.Values
	key    string // "" for reads
	body   []byte
}

// call tries until an answer, a refusal that a retry cannot change, or the last try.
func (c *Client) call(ctx context.Context, r call, out any) error {
	for try := 0; ; try++ {
		err := c.once(ctx, r, out)
		var refused *Error
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, try == c.tries-1, errors.As(err, &refused) && !refused.transient():
			return err
		}
		wait := c.backoff.Delay(try)
		if refused != nil && refused.RetryAfter > 0 {
			wait += refused.RetryAfter
		}
		if wait > maxRetryAfter+c.backoff.Max {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(time.Now().Add(wait)) {
			return err // waiting would only turn the answer into a deadline
		}
		if sleep(ctx, wait) != nil {
			return err
		}
	}
}

// once sends the request and decodes data into out.
func (c *Client) once(ctx context.Context, r call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	target := *c.base
	target.Path += r.path
	target.RawQuery = r.query.Encode()
	request, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	if r.method != http.MethodGet {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", r.key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("orbit: %s %s: %w", r.method, r.path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return refusal(response)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("orbit: %s %s: read the answer: %w", r.method, r.path, err)
	}
	return decodeAnswer(response, text, out)
}

func decodeAnswer(r *http.Response, text []byte, out any) error {
	var a answer
	err := json.Unmarshal(text, &a)
	if err == nil && a.Data == nil {
		err = errors.New("no data")
	}
	if err == nil {
		err = json.Unmarshal(a.Data, out)
	}
	if err != nil {
		return &Error{Code: ErrInternal, HTTPStatus: r.StatusCode, RequestID: r.Header.Get("X-Request-ID"),
			Message: "the answer is not Orbit's: " + err.Error()}
	}
	return nil
}

// path joins a collection, an id and what follows it; an id is checked because an empty or foreign one
// would name another endpoint.
func path(collection, id, rest string) (string, error) {
	if !isID(id) {
		return "", invalid("id in /v1/%s: must be 32 lowercase hex characters", collection)
	}
	return "/v1/" + collection + "/" + id + rest, nil
}

// command posts body to one resource.
func (c *Client) command(ctx context.Context, collection, id, rest, key string, body []byte, out any) error {
	p, err := path(collection, id, rest)
	if err != nil {
		return err
	}
	return c.post(ctx, p, key, body, out)
}

// one reads one resource.
func (c *Client) one(ctx context.Context, collection, id, rest string, query url.Values, out any) error {
	p, err := path(collection, id, rest)
	if err != nil {
		return err
	}
	return c.get(ctx, p, query, out)
}

// plain encodes a request that holds no business JSON.
func plain(request any) []byte {
	text, err := json.Marshal(request)
	if err != nil {
		panic("orbit: " + err.Error()) // such requests always marshal
	}
	return text
}
