package orbit

import (
	"context"
	"iter"
	"net/url"
	"strconv"
)

// Page is a part of a list. NextCursor is "" on the last.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// ListOptions says which part of a list to read. A cursor goes only with the list it came from.
type ListOptions struct {
	Limit  int    // 1–100 (0: 20)
	Cursor string // Page.NextCursor; "" for the first page
}

func (o ListOptions) query() url.Values {
	q := url.Values{}
	set(q, "cursor", o.Cursor)
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// all reads page after page. A failure is yielded once, with a zero item, and ends the sequence.
func all[T any](ctx context.Context, o ListOptions, read func(context.Context, ListOptions) (*Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for o := o; ; {
			page, err := read(ctx, o)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			o.Cursor = page.NextCursor
		}
	}
}
