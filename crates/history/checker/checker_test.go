package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const soon = 120 * time.Second

func verdict(h *history) porcupine.CheckResult {
	found, _ := h.check(soon)
	return found
}

// lines is a history of these lines, of one kind. A line is a call and what it answered.
func lines(t *testing.T, kind string, calls ...string) *history {
	t.Helper()
	text := `{"history":0,"seed":1,"kind":"` + kind + `","told":"","names":{"a":100,"b":200}}` + "\n"
	text += strings.Join(calls, "\n") + "\n"
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return recorded(t, path)[0]
}

func recorded(t *testing.T, path string) []*history {
	t.Helper()
	histories, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return histories
}

func expect(t *testing.T, expected porcupine.CheckResult, h *history) {
	t.Helper()
	if found := verdict(h); found != expected {
		t.Fatalf("%s, not %s", found, expected)
	}
}

const (
	ok  = porcupine.Ok
	bad = porcupine.Illegal
)

// Calls that a test says more than once.
const (
	writes1     = `{"id":1,"call":10,"op":"write","file":0,"at":0,"cells":2}`
	returned1   = `{"id":1,"ret":20}`
	writes2     = `{"id":2,"call":12,"op":"write","file":0,"at":0,"cells":2}`
	returned2   = `{"id":2,"ret":22}`
	reads3      = `{"id":3,"call":30,"op":"read","file":0,"at":0,"cells":2}`
	readsEarly3 = `{"id":3,"call":15,"op":"read","file":0,"at":0,"cells":2}`
)

func TestAReadSeesAllThatHadReturned(t *testing.T) {
	expect(t, ok, lines(t, "data", writes1, returned1, reads3, `{"id":3,"ret":40,"runs":[[[1,2]]]}`))
	expect(t, bad, lines(t, "data", writes1, returned1, reads3, `{"id":3,"ret":40,"runs":[[]]}`))
	// beside it, it may or may not
	for _, runs := range []string{"[]", "[[1,2]]"} {
		expect(t, ok, lines(t, "data", writes1, returned1, readsEarly3,
			`{"id":3,"ret":40,"runs":[`+runs+`]}`))
	}
}

func TestReadsDoNotGoBackInTime(t *testing.T) {
	later := `{"id":4,"call":50,"op":"read","file":0,"at":0,"cells":2}`
	both := []string{writes1, returned1, writes2, returned2, reads3}
	expect(t, ok, lines(t, "data", append(both,
		`{"id":3,"ret":40,"runs":[[[2,2]]]}`, later, `{"id":4,"ret":60,"runs":[[[2,2]]]}`)...))
	expect(t, bad, lines(t, "data", append(both,
		`{"id":3,"ret":40,"runs":[[[2,2]]]}`, later, `{"id":4,"ret":60,"runs":[[[1,2]]]}`)...))
}

func TestTornWritesAreNone(t *testing.T) {
	expect(t, bad, lines(t, "data", writes1, returned1, writes2, returned2, reads3,
		`{"id":3,"ret":40,"runs":[[[1,1],[2,1]]]}`))
	expect(t, bad, lines(t, "data", writes1, returned1, reads3,
		`{"id":3,"ret":40,"runs":[[[1,1],[-1,1]]]}`))
	// half a write, while it is under way
	expect(t, bad, lines(t, "data", writes1, returned1, readsEarly3,
		`{"id":3,"ret":40,"runs":[[[1,1]]]}`))
}

func TestWhatDidNotReturnMayHaveHappened(t *testing.T) {
	later := `{"id":4,"call":50,"op":"read","file":0,"at":0,"cells":2}`
	for _, runs := range []string{"[]", "[[1,2]]"} {
		expect(t, ok, lines(t, "data", writes1, reads3, `{"id":3,"ret":40,"runs":[`+runs+`]}`))
	}
	expect(t, ok, lines(t, "data", writes1, reads3, `{"id":3,"ret":40,"runs":[[]]}`, later,
		`{"id":4,"ret":60,"runs":[[[1,2]]]}`))
	expect(t, bad, lines(t, "data", writes1, reads3, `{"id":3,"ret":40,"runs":[[[1,2]]]}`, later,
		`{"id":4,"ret":60,"runs":[[]]}`))
}

func TestSizesAndAppends(t *testing.T) {
	append2 := `{"id":2,"call":30,"op":"append","file":0,"cells":3}`
	size := func(at string, cells string) string {
		return `{"id":3,"call":5` + at + `,"op":"size","file":0}` + "\n" + `{"id":3,"ret":6` + at +
			`,"size":` + cells + `}`
	}
	expect(t, ok, lines(t, "data", writes1, returned1, append2, `{"id":2,"ret":40,"size":2}`,
		size("0", "5")))
	expect(t, bad, lines(t, "data", writes1, returned1, append2, `{"id":2,"ret":40,"size":0}`))
	expect(t, bad, lines(t, "data", writes1, returned1, append2, `{"id":2,"ret":40,"size":2}`,
		size("0", "2")))
	expect(t, bad, lines(t, "data", writes1, `{"id":1,"ret":20,"errno":28}`))
}

func TestTransactionsAreSeenWhole(t *testing.T) {
	both := `{"id":1,"call":10,"op":"transact","reads":[],"writes":[` +
		`{"file":0,"at":0,"cells":1},{"file":1,"at":0,"cells":1}]}`
	read := func(id, file, call, ret, runs string) string {
		return `{"id":` + id + `,"call":` + call + `,"op":"read","file":` + file +
			`,"at":0,"cells":1}` + "\n" + `{"id":` + id + `,"ret":` + ret + `,"runs":[` + runs + `]}`
	}
	expect(t, ok, lines(t, "transactions", both, read("2", "0", "11", "12", "[]"),
		read("3", "1", "13", "14", "[[1,1]]"), `{"id":1,"ret":20}`))
	expect(t, bad, lines(t, "transactions", both, read("2", "0", "11", "12", "[[1,1]]"),
		read("3", "1", "13", "14", "[]"), `{"id":1,"ret":20}`))
}

func TestNames(t *testing.T) {
	rename := `{"id":1,"call":10,"op":"rename","from":"a","to":"c"}`
	find := func(id, name, call, ret, found string) string {
		return `{"id":` + id + `,"call":` + call + `,"op":"lookup","name":"` + name + `"}` + "\n" +
			`{"id":` + id + `,"ret":` + ret + `,` + found + `}`
	}
	gone := `"errno":2`
	expect(t, ok, lines(t, "renames", rename, `{"id":1,"ret":20}`,
		find("2", "c", "30", "31", `"ino":100,"links":1`), find("3", "a", "32", "33", gone)))
	// neither name, and both
	expect(t, bad, lines(t, "renames", rename, find("2", "a", "11", "12", gone),
		find("3", "c", "13", "14", gone), `{"id":1,"ret":20}`))
	expect(t, bad, lines(t, "renames", rename, find("2", "c", "11", "12", `"ino":100`),
		find("3", "a", "13", "14", `"ino":100`), `{"id":1,"ret":20}`))
	// what replaces nothing says of the target alone that it is there
	move := func(to, ret string) string {
		return `{"id":1,"call":10,"op":"move","from":"a","to":"` + to + `"}` + "\n" +
			`{"id":1,"ret":20,` + ret + `}`
	}
	expect(t, ok, lines(t, "renames", move("b", `"errno":17`)))
	expect(t, bad, lines(t, "renames", move("c", `"errno":17`)))
	expect(t, bad, lines(t, "renames", move("b", `"errno":0`)))
	expect(t, bad, lines(t, "renames", move("c", `"errno":2`)))
	expect(t, ok, lines(t, "renames", move("c", `"errno":0`),
		find("2", "c", "30", "31", `"ino":100,"links":1`), find("3", "a", "32", "33", gone)))
	link := `{"id":1,"call":10,"op":"link","from":"a","to":"d"}`
	expect(t, ok, lines(t, "links", link, `{"id":1,"ret":20}`,
		find("2", "d", "30", "31", `"ino":100,"links":2`)))
	expect(t, bad, lines(t, "links", link, `{"id":1,"ret":20}`,
		find("2", "a", "30", "31", `"ino":100,"links":1`)))
	// a creation that did not live to say which inode it made
	create := `{"id":1,"call":10,"op":"create","name":"c"}`
	expect(t, ok, lines(t, "renames", create, find("2", "c", "30", "31", `"ino":300`),
		find("3", "c", "32", "33", `"ino":300`)))
	expect(t, bad, lines(t, "renames", create, find("2", "c", "30", "31", `"ino":300`),
		find("3", "c", "32", "33", `"ino":301`)))
}

// mutants of one call that was recorded; none: it has none of this kind.
var mutants = map[string]func(h *history, at int) bool{
	"a write that is not seen": func(h *history, at int) bool {
		return changeRuns(h.calls[at], func(run *[2]int64) { run[0] = 0 })
	},
	"half of a write": func(h *history, at int) bool {
		return changeRuns(h.calls[at], func(run *[2]int64) {
			if run[1] > 1 {
				run[1]--
			}
		})
	},
	"a size": func(h *history, at int) bool {
		size := h.calls[at].output.Size
		if size != nil {
			*size++
		}
		return size != nil
	},
	"a name that is gone": func(h *history, at int) bool {
		out := h.calls[at].output
		found := h.calls[at].input.Op == "lookup" && out.Ino != 0
		if found {
			out.Ino, out.Errno = 0, noEntry
		}
		return found
	},
	"another inode": func(h *history, at int) bool {
		out := h.calls[at].output
		found := h.calls[at].input.Op == "lookup" && out.Ino != 0
		if found {
			out.Ino++
		}
		return found
	},
	"an error": func(h *history, at int) bool {
		out := h.calls[at].output
		if out.Unknown || out.Errno != 0 {
			return false
		}
		out.Errno = 5
		return h.calls[at].input.Op != "lookup"
	},
}

func changeRuns(c *call, change func(run *[2]int64)) bool {
	for _, runs := range c.output.Runs {
		for n := range runs {
			before := runs[n]
			if runs[n][0] > 0 {
				change(&runs[n])
			}
			if runs[n] != before {
				return true
			}
		}
	}
	return false
}

// Real histories have an order; with one answer changed most have none.
func TestMutantsOfRecordedHistories(t *testing.T) {
	noticed := map[string]int{}
	for _, kind := range []string{"data", "transactions", "links", "renames"} {
		path := filepath.Join("testdata", kind+".jsonl")
		whole := recorded(t, path)[0]
		expect(t, ok, whole)
		for name, mutate := range mutants {
			changed := 0
			for at := range whole.calls {
				h := recorded(t, path)[0]
				if !mutate(h, at) {
					continue
				}
				changed++
				if verdict(h) == bad {
					noticed[name]++
				}
			}
			t.Logf("%s, %s: %d changed, %d noticed so far", kind, name, changed, noticed[name])
		}
	}
	for name := range mutants {
		if noticed[name] == 0 {
			t.Errorf("not noticed: %s", name)
		}
	}
}

func TestTheFirstReturnThatNothingExplainsIsNamed(t *testing.T) {
	h := lines(t, "data", writes1, returned1, reads3, `{"id":3,"ret":40,"runs":[[]]}`)
	words := explain(h.model(), h.operations(), soon)
	if !strings.HasPrefix(words, "no order explains 0:read f0 at 0, 2 cells #3 ->") {
		t.Fatal(words)
	}
}

func TestWhatWasNotFoundOutIsToldAndNotPassed(t *testing.T) {
	calls := []string{}
	for id := 1; id <= 24; id++ {
		// all at once, each at its own place: more orders than can be looked at
		call := input{ID: int64(id), Call: int64(id), Op: "write", part: part{At: 24 - id, Cells: 1}}
		line, _ := json.Marshal(call)
		ret, _ := json.Marshal(map[string]int{"id": id, "ret": 1000})
		calls = append(calls, string(line), string(ret))
	}
	h := lines(t, "data", append(calls, `{"id":99,"call":2000,"op":"size","file":0}`,
		`{"id":99,"ret":2001,"size":1000}`)...)
	found := newVerdicts()
	found.add(h, time.Millisecond, "", true)
	if len(found.Unknown) != 1 || len(found.Illegal) != 0 {
		t.Fatalf("%+v", found)
	}
	// of pages, where each load was looked at by itself
	h = lines(t, "pages", append(calls, `{"id":99,"call":2000,"op":"read","file":0,"at":0,"cells":24}`,
		`{"id":99,"ret":2001,"runs":[[[1,24]]]}`)...)
	h.head.Doors = []string{"owner"}
	found = newVerdicts()
	found.add(h, time.Millisecond, "", true)
	if len(found.Unsearched) != 1 || found.Pages != 1 || len(found.Unknown)+len(found.Illegal) != 0 {
		t.Fatalf("%+v", found)
	}
}
