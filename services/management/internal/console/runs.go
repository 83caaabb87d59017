package console

import (
	"bytes"
	"context"
	_ "embed"
	"html/template"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

//go:embed run.html
var runSource string

var runPage = template.Must(template.New("run").Parse(runSource))

// Serves reports whether a path belongs to the console: its page, and Path/runs/{namespace}/{run}.
func Serves(path string) bool { return path == Path || strings.HasPrefix(path, Path+"/") }

// renderRun draws the run that a path names; NOT_FOUND for any other path.
func (c *Console) renderRun(ctx context.Context, path string) ([]byte, error) {
	namespaceText, runText, _ := strings.Cut(strings.TrimPrefix(path, Path+"/runs/"), "/")
	namespace, err := ids.ParseID(namespaceText)
	if err != nil {
		return nil, errs.New(errs.NotFound, "no such page")
	}
	id, err := ids.ParseID(runText)
	if err != nil {
		return nil, errs.New(errs.NotFound, "no such page")
	}
	run, err := c.store.RunForOperator(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = runPage.Execute(&b, map[string]any{"Run": run, "Graph": draw(run.Steps), "Home": Path, "At": time.Now().UTC().Format(time.RFC3339)})
	return b.Bytes(), err
}

// Sizes of the drawing, in pixels.
const (
	boxWidth, boxHeight = 170, 44
	gapX, gapY          = 60, 16
)

type graph struct {
	Width, Height int
	Boxes         []box
	Edges         []edge
}

type box struct {
	X, Y int
	Step flow.StepRecord
}

type edge struct{ X1, Y1, X2, Y2 int }

// draw puts each step in the column after the last of those it depends on.
func draw(steps []flow.StepRecord) graph {
	index, column := map[string]int{}, make([]int, len(steps))
	for i, s := range steps {
		index[s.Name] = i
	}
	for range steps { // columns settle after as many rounds as the longest path has steps
		for i, s := range steps {
			for _, need := range s.DependsOn {
				column[i] = max(column[i], column[index[need]]+1)
			}
		}
	}
	g := graph{Boxes: make([]box, len(steps))}
	rows := map[int]int{}
	for i, s := range steps {
		b := box{X: gapX/2 + column[i]*(boxWidth+gapX), Y: gapY + rows[column[i]]*(boxHeight+gapY), Step: s}
		rows[column[i]]++
		g.Boxes[i] = b
		g.Width, g.Height = max(g.Width, b.X+boxWidth+gapX/2), max(g.Height, b.Y+boxHeight+gapY)
	}
	for i, s := range steps {
		for _, need := range s.DependsOn {
			from, to := g.Boxes[index[need]], g.Boxes[i]
			g.Edges = append(g.Edges, edge{from.X + boxWidth, from.Y + boxHeight/2, to.X, to.Y + boxHeight/2})
		}
	}
	return g
}
