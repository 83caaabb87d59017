package main_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTourOfTheREADME runs the README's script as it stands.
func TestTourOfTheREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(text)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tour := exec.CommandContext(ctx, "bash", "-euo", "pipefail")
	tour.Stdin = strings.NewReader("set -m\n" + string(script[1]))
	tour.Env = append(append(clean(), stack...), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := tour.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"ok    action", "9007199254740993", "acknowledged", "retired"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour never prints %q:\n%s", want, out)
		}
	}
}
