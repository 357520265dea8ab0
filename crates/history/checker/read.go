package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// never is when a call returns that did not.
const never = math.MaxInt64

// The first line of a history.
type head struct {
	History *int             `json:"history"`
	Seed    uint64           `json:"seed"`
	Kind    string           `json:"kind"`
	Told    string           `json:"told"`
	Names   map[string]int64 `json:"names"`
	// The door of each caller.
	Doors []string `json:"doors"`
	// When services were killed: a moment before, and one when the next service answered.
	Kills [][2]int64 `json:"kills"`
}

// Cells of a file.
type part struct {
	File  int `json:"file"`
	At    int `json:"at"`
	Cells int `json:"cells"`
}

// What was called.
type input struct {
	ID     int64  `json:"id"`
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	Op     string `json:"op"`
	part
	Reads  []part `json:"reads"`
	Writes []part `json:"writes"`
	Name   string `json:"name"`
	From   string `json:"from"`
	To     string `json:"to"`
	Ino    int64  `json:"ino"`
	// It may read less than there is.
	endsEarly bool
}

// isAway says whether a caller called at a mount of another machine.
func (h *history) isAway(client int) bool {
	door := h.door(client)
	return door == "away" || door == "awaymapped"
}

// isAtRegion says whether a caller called at regions, of this machine.
func (h *history) isAtRegion(client int) bool { return h.door(client) == "regions" }

// isCellwise says whether it reads each cell at a moment of its own.
func (i *input) isCellwise() bool { return i.Op == "load" || i.Op == "copy" }

// readsOnly says whether it changes nothing: if it did not return, it says nothing.
func (i *input) readsOnly() bool {
	return i.Op == "read" || i.isCellwise() || i.Op == "size" || i.Op == "lookup" ||
		i.Op == "transact" && len(i.Writes) == 0
}

// What it answered.
type output struct {
	Ret      int64        `json:"ret"`
	Errno    int          `json:"errno"`
	Unknown  bool         `json:"unknown"`
	Conflict bool         `json:"conflict"`
	Runs     [][][2]int64 `json:"runs"`
	Size     *int         `json:"size"`
	Ino      int64        `json:"ino"`
	Links    int          `json:"links"`
}

// unfinished is the answer of a call that may have happened.
var unfinished = &output{Ret: never, Unknown: true}

// A call, and its answer, if it has one.
type call struct {
	input  *input
	output *output
}

func (c *call) isUnfinished() bool { return c.output.Unknown }

// A history that was recorded.
type history struct {
	head  head
	calls []*call
}

func (h *history) name() string {
	return fmt.Sprintf("seed %d, history %d (%s; %s)", h.head.Seed, *h.head.History, h.head.Kind,
		h.head.Told)
}

// readFile reads histories, each behind its head.
func readFile(path string) ([]*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var histories []*history
	var began map[int64]*call
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for number := 1; lines.Scan(); number++ {
		line := lines.Bytes()
		wrong := func(err error) error { return fmt.Errorf("line %d: %w", number, err) }
		var what struct {
			History *int   `json:"history"`
			Call    *int64 `json:"call"`
			ID      int64  `json:"id"`
		}
		if err := json.Unmarshal(line, &what); err != nil {
			// a caller was killed as it wrote this down
			if began != nil {
				continue
			}
			return nil, wrong(err)
		}
		switch {
		case what.History != nil:
			history := &history{}
			if err := json.Unmarshal(line, &history.head); err != nil {
				return nil, wrong(err)
			}
			histories = append(histories, history)
			began = map[int64]*call{}
		case began == nil:
			return nil, wrong(fmt.Errorf("no history has begun"))
		case what.Call != nil:
			call := &call{input: &input{}, output: unfinished}
			if err := json.Unmarshal(line, call.input); err != nil {
				return nil, wrong(err)
			}
			if began[what.ID] != nil {
				return nil, wrong(fmt.Errorf("call %d began before", what.ID))
			}
			began[what.ID] = call
			for _, part := range append(call.input.Reads, call.input.Writes...) {
				// of pages, where all are of one
				call.input.File = part.File
			}
			last := histories[len(histories)-1]
			last.calls = append(last.calls, call)
		default:
			call := began[what.ID]
			if call == nil || call.output != unfinished {
				return nil, wrong(fmt.Errorf("call %d returns and had not begun", what.ID))
			}
			call.output = &output{}
			if err := json.Unmarshal(line, call.output); err != nil {
				return nil, wrong(err)
			}
		}
	}
	return histories, lines.Err()
}

// operations is what has a meaning, in the order in which it began.
func (h *history) operations() []porcupine.Operation {
	var operations []porcupine.Operation
	for _, call := range h.calls {
		in, out := call.input, call.output
		if out.Conflict || in.Op == "sync" && out.Errno == 0 || out.Unknown && in.readsOnly() {
			continue
		}
		ret := out.Ret
		if out.Unknown {
			ret = never
		}
		operations = append(operations, porcupine.Operation{
			ClientId: in.Client, Input: in, Call: in.Call, Output: out, Return: ret,
		})
	}
	sort.SliceStable(operations, func(i, j int) bool {
		return operations[i].Call < operations[j].Call
	})
	return operations
}

func returnsInOrder(operations []porcupine.Operation) []porcupine.Operation {
	returns := append([]porcupine.Operation(nil), operations...)
	sort.SliceStable(returns, func(i, j int) bool { return returns[i].Return < returns[j].Return })
	return returns
}

// hasPages says whether doors through the pages of a kernel are among those that were called at.
func (h *history) hasPages() bool { return h.head.Kind == "pages" }

// door is what a caller called at.
func (h *history) door(client int) string {
	if client < len(h.head.Doors) {
		return h.head.Doors[client]
	}
	return "driver"
}

// check looks for an order of the calls, and says what it found out, and why there is none.
func (h *history) check(timeout time.Duration) (porcupine.CheckResult, func() string) {
	operations := h.operations()
	var model porcupine.Model
	switch {
	case h.hasPages():
		if wrong := h.wrongLoad(); wrong != "" {
			return porcupine.Illegal, func() string { return wrong }
		}
		operations = h.pageOperations()
		model = pagesModel(operations)
	default:
		model = h.model()
	}
	explained := func() string { return explain(model, operations, timeout) }
	return porcupine.CheckOperationsTimeout(model, operations, timeout), explained
}

// model is that of a history without doors through pages.
func (h *history) model() porcupine.Model {
	if h.head.Kind == "links" || h.head.Kind == "renames" {
		return namesModel(h.head.Names)
	}
	transacts := false
	for _, call := range h.calls {
		transacts = transacts || call.input.Op == "transact"
	}
	return dataModel(transacts)
}

func describe(in, out interface{}) string {
	i, o := in.(*input), out.(*output)
	words := fmt.Sprintf("%d:%s", i.ID>>16, i.Op)
	switch i.Op {
	case "transact":
		words += fmt.Sprintf(" reads %v writes %v", i.Reads, i.Writes)
	case "link", "rename", "move":
		words += fmt.Sprintf(" %s %s", i.From, i.To)
	case "linkinode":
		words += fmt.Sprintf(" %d %s", i.Ino, i.To)
	case "create", "unlink", "lookup":
		words += " " + i.Name
	default:
		words += fmt.Sprintf(" f%d at %d, %d cells", i.File, i.At, i.Cells)
	}
	words += fmt.Sprintf(" #%d ->", i.ID)
	switch {
	case o.Unknown:
		return words + " ?"
	case o.Errno != 0:
		return words + fmt.Sprintf(" errno %d", o.Errno)
	}
	if o.Runs != nil {
		words += fmt.Sprintf(" %v", o.Runs)
	}
	if o.Size != nil {
		words += fmt.Sprintf(" %d", *o.Size)
	}
	if o.Ino != 0 {
		words += fmt.Sprintf(" inode %d (%d links)", o.Ino, o.Links)
	}
	return words
}
