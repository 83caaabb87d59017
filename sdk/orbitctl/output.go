package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"text/tabwriter"
	"time"
)

// show prints v as JSON, or calls table.
func (a *app) show(v any, table func()) error {
	if a.format != "json" {
		table()
		return nil
	}
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows under a header, in columns. Control characters of the data do not reach the terminal.
func (a *app) table(header string, rows [][]string) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
	for _, r := range rows {
		for i := range r {
			r[i] = printable(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush()
}

// fields prints name and value pairs; empty values are left out.
func (a *app) fields(pairs ...string) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], printable(pairs[i+1]))
		}
	}
	_ = w.Flush()
}

// list shows up to limit items (0: all) as {"items": […]} or as a table.
func list[T any](a *app, items iter.Seq2[T, error], limit int, header string, row func(T) []string) error {
	found := []T{}
	for item, err := range items {
		if err != nil {
			return err
		}
		if found = append(found, item); len(found) == limit {
			break
		}
	}
	return a.show(map[string][]T{"items": found}, func() {
		rows := make([][]string, len(found))
		for i, item := range found {
			rows[i] = row(item)
		}
		a.table(header, rows)
	})
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func stampOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return stamp(*t)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
