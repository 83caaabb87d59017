package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listFiles returns every regular file below dir, without what is no input: the stack's own state,
// git's, and what `make` built.
func listFiles(dir, state string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	built := filepath.Dir(self)
	skip := map[string]bool{state: true, built: true, filepath.Join(filepath.Dir(built), ".tools"): true}
	var out []string
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			abs, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			if skip[abs] || entry.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		if entry.Type().IsRegular() {
			out = append(out, path)
		}
		return nil
	})
	return out, err
}

// work is the input of a task: a file, and which time it is that the file is taken.
type work struct {
	Path  string `json:"path"`
	Round int    `json:"round"`
}

// rounds takes the files again and again until there are n pieces of work.
func rounds(files []string, n int) []work {
	out := make([]work, n)
	for i := range out {
		out[i] = work{files[i%len(files)], i / len(files)}
	}
	return out
}

// summary is the result of a task: what a worker computes of one file.
type summary struct {
	work
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
	Lines  int    `json:"lines"`
	Words  []word `json:"words"` // the most frequent, most frequent first
}

type word struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

const topWords = 5

func summarise(w work) (summary, error) {
	data, err := os.ReadFile(w.Path)
	if err != nil {
		return summary{}, err
	}
	digest := sha256.Sum256(data)
	return summary{
		work: w, SHA256: hex.EncodeToString(digest[:]), Bytes: len(data), Lines: bytes.Count(data, []byte{'\n'}), Words: frequent(data),
	}, nil
}

func frequent(data []byte) []word {
	counts := map[string]int{}
	words := bufio.NewScanner(bytes.NewReader(data))
	words.Buffer(nil, len(data)+1) // a binary file may be one long word
	words.Split(bufio.ScanWords)
	for words.Scan() {
		if w := words.Text(); len(w) <= 64 {
			counts[strings.ToValidUTF8(w, "?")]++
		}
	}
	out := make([]word, 0, len(counts))
	for w, n := range counts {
		out = append(out, word{w, n})
	}
	slices.SortFunc(out, func(a, b word) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Word, b.Word)
	})
	return out[:min(len(out), topWords)]
}
