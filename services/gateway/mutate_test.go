package main

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// mutations damage a text in the ways that decoders have been known to fall over. Each takes the text and
// another one to borrow from, and changes neither.
var mutations = []func(rnd *rand.Rand, text, other []byte) []byte{
	cutTail, cutMiddle, swapChunks, flipBytes, splice, duplicateMember, dropMember, renameMember, replaceValue, notAValue, deepen, pad, twice, badUTF8,
}

// bodyMutations mostly leave well-formed JSON.
var bodyMutations = []func(rnd *rand.Rand, text, other []byte) []byte{replaceValue, replaceValue, replaceValue, duplicateMember, dropMember, renameMember, deepen}

func randomBytes(rnd *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rnd.Uint32())
	}
	return out
}

// span is a random stretch of a text.
func span(rnd *rand.Rand, text []byte) (from, to int) {
	from = rnd.IntN(len(text) + 1)
	return from, from + rnd.IntN(len(text)-from+1)
}

func cutTail(rnd *rand.Rand, text, _ []byte) []byte { return text[:rnd.IntN(len(text)+1)] }

func cutMiddle(rnd *rand.Rand, text, _ []byte) []byte {
	from, to := span(rnd, text)
	return slices.Concat(text[:from], text[to:])
}

func swapChunks(rnd *rand.Rand, text, _ []byte) []byte {
	from, to := span(rnd, text)
	if from == to {
		return text
	}
	middle := from + rnd.IntN(to-from)
	return slices.Concat(text[:from], text[middle:to], text[from:middle], text[to:])
}

func flipBytes(rnd *rand.Rand, text, _ []byte) []byte {
	out := bytes.Clone(text)
	for range 1 + rnd.IntN(4) {
		if len(out) > 0 {
			out[rnd.IntN(len(out))] ^= byte(1 + rnd.IntN(255))
		}
	}
	return out
}

func splice(rnd *rand.Rand, text, other []byte) []byte {
	at, _ := span(rnd, text)
	from, to := span(rnd, other)
	return slices.Concat(text[:at], other[from:to], text[at:])
}

var (
	aMember = regexp.MustCompile(`"[a-z_]+":\s*("[^"]*"|[0-9.]+|true|false|null|\{\})`)
	aName   = regexp.MustCompile(`"[a-z_]+":`)
	aValue  = regexp.MustCompile(`:\s*("[^"]*"|[0-9.]+|true|false|null|\{\})`)
)

// one picks a match, nil if there is none.
func one(rnd *rand.Rand, pattern *regexp.Regexp, text []byte) []int {
	all := pattern.FindAllIndex(text[:min(len(text), 10_000)], -1)
	if len(all) == 0 {
		return nil
	}
	return all[rnd.IntN(len(all))]
}

func duplicateMember(rnd *rand.Rand, text, _ []byte) []byte {
	at := one(rnd, aMember, text)
	if at == nil {
		return text
	}
	return slices.Concat(text[:at[1]], []byte(","), text[at[0]:at[1]], text[at[1]:])
}

func dropMember(rnd *rand.Rand, text, _ []byte) []byte {
	at := one(rnd, aMember, text)
	if at == nil {
		return text
	}
	rest, found := bytes.CutPrefix(text[at[1]:], []byte(","))
	if !found {
		return text
	}
	return slices.Concat(text[:at[0]], rest)
}

func renameMember(rnd *rand.Rand, text, _ []byte) []byte {
	at := one(rnd, aName, text)
	if at == nil {
		return text
	}
	name := string(text[at[0]:at[1]])
	return slices.Concat(text[:at[0]], []byte([]string{strings.ToUpper(name), strings.Replace(name, "e", `\u0065`, 1), `"":`, `"` + strings.Repeat("n", 5000) + `":`}[rnd.IntN(4)]), text[at[1]:])
}

func replaceValue(rnd *rand.Rand, text, _ []byte) []byte {
	at := one(rnd, aValue, text)
	if at == nil {
		return text
	}
	value := []string{
		"1e400", "-0", "1.0", "9007199254740993", "18446744073709551616", `"18446744073709551615"`, "-1", "null", "true", `""`, "[]", "{}",
		strings.Repeat("9", 1+rnd.IntN(100_000)), `"` + strings.Repeat("s", rnd.IntN(100_000)) + `"`, `[` + strings.Repeat("{},", rnd.IntN(3000)) + `{}]`,
	}
	return slices.Concat(text[:at[0]+1], []byte(value[rnd.IntN(len(value))]), text[at[1]:])
}

// notAValue puts what is no JSON in a value's place.
func notAValue(rnd *rand.Rand, text, _ []byte) []byte {
	at := one(rnd, aValue, text)
	if at == nil {
		return text
	}
	return slices.Concat(text[:at[0]+1], []byte([]string{`"\ud800"`, "0x1", "NaN", "01", "'", "undefined"}[rnd.IntN(6)]), text[at[1]:])
}

func deepen(rnd *rand.Rand, text, _ []byte) []byte {
	at := one(rnd, aValue, text)
	if at == nil {
		return text
	}
	depth := 1 + rnd.IntN(12_000)
	opening, closing := `{"a":`, "}"
	if rnd.IntN(2) == 0 {
		opening, closing = "[", "]"
	}
	return slices.Concat(text[:at[0]+1], []byte(strings.Repeat(opening, depth)+"1"+strings.Repeat(closing, depth)), text[at[1]:])
}

// pad brings a text to just below, at or above the limit of a frame, now and then.
func pad(rnd *rand.Rand, text, _ []byte) []byte {
	size := []int{524_287, 524_288, 524_289, 600_000}[rnd.IntN(4)]
	if rnd.IntN(20) > 0 {
		size = len(text) + rnd.IntN(100)
	}
	return slices.Concat(text, bytes.Repeat([]byte(" "), max(0, size-len(text))))
}

func twice(_ *rand.Rand, text, _ []byte) []byte {
	if len(text) > 200_000 {
		return text
	}
	return slices.Concat(text, text)
}

func badUTF8(rnd *rand.Rand, text, _ []byte) []byte {
	at, _ := span(rnd, text)
	return slices.Concat(text[:at], []byte{0xc3, 0x28, 0xf0, 0x9f}, text[at:])
}
