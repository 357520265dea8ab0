package main

import "fmt"

// What all loads by pages must keep, cell by cell, whatever the order of calls: a value was there,
// and no change that came after it had returned when the load began.

// touches says whether a call may change a cell, and whether it surely does.
func (c *call) touches(file, cell int) (may, surely bool) {
	i := c.input
	if i.File != file {
		return false, false
	}
	switch i.Op {
	case "write", "store":
		within := cell >= i.At && cell < i.At+i.Cells
		return within, within
	case "append":
		if c.output.Size == nil {
			return true, false
		}
		within := cell >= *c.output.Size && cell < *c.output.Size+i.Cells
		return within, within
	case "punch":
		return cell >= i.At && cell < i.At+i.Cells, false
	case "truncate":
		return cell >= i.Cells, false
	}
	return false, false
}

// gives says whether a call that may change a cell can have left this value there.
func (c *call) gives(value int64) bool {
	if c.input.Op == "punch" || c.input.Op == "truncate" {
		return value == 0
	}
	return value == c.input.ID
}

// ret is when a call returned; never, if it did not.
func (c *call) ret() int64 {
	if c.output.Unknown {
		return never
	}
	return c.output.Ret
}

// The changes that may have been made to a cell.
type cellChanges struct {
	all []*call
	// From when on it may hold anything, as a store and another change were under way at once.
	raceFrom int64
}

func (h *history) changesOf(file, cell int) *cellChanges {
	changes := &cellChanges{raceFrom: never}
	for _, call := range h.calls {
		if may, _ := call.touches(file, cell); may && call.output.Errno == 0 {
			changes.all = append(changes.all, call)
		}
	}
	for n, one := range changes.all {
		for _, other := range changes.all[:n] {
			if one.input.Op != "store" && other.input.Op != "store" {
				continue
			}
			if one.input.Call <= other.ret() && other.input.Call <= one.ret() {
				changes.raceFrom = min64(changes.raceFrom, min64(one.input.Call, other.input.Call))
			}
		}
	}
	return changes
}

// whyNot says why a load cannot have seen this value in a cell; nothing, if it can.
func (h *history) whyNot(load *call, cell int, value int64, changes *cellChanges) string {
	began, returned := load.input.Call, load.ret()
	late := int64(0)
	if h.isAway(load.input.Client) {
		late = momentMax
	}
	if changes.raceFrom < returned {
		return ""
	}
	sources := []*call{}
	for _, change := range changes.all {
		if change.input.Call <= returned && change.gives(value) {
			sources = append(sources, change)
		}
		if value == -1 && change.input.Op == "store" && change.input.Call <= returned &&
			change.ret() >= began {
			return ""
		}
	}
	if value == 0 {
		// as all cells are in the beginning
		sources = append(sources, &call{input: &input{}, output: &output{}})
	}
	if len(sources) == 0 {
		return "it was never there"
	}
	why := ""
	for _, source := range sources {
		why = ""
		for _, change := range changes.all {
			_, surely := change.touches(load.input.File, cell)
			if surely && change.input.Call > source.ret() &&
				h.shownFrom(change.input, change.output) < began-late {
				why = fmt.Sprintf("it was replaced by #%d, which had returned", change.input.ID)
				break
			}
		}
		if why == "" {
			return ""
		}
	}
	return why
}

// wrongLoad finds a load that no order explains, if there is one, and says why.
func (h *history) wrongLoad() string {
	known := map[[2]int]*cellChanges{}
	for _, load := range h.calls {
		if !load.input.isCellwise() || load.output.Unknown || load.output.Errno != 0 {
			continue
		}
		cell := load.input.At
		for _, runs := range load.output.Runs {
			for _, run := range runs {
				for n := int64(0); n < run[1]; n++ {
					place := [2]int{load.input.File, cell}
					if known[place] == nil {
						known[place] = h.changesOf(load.input.File, cell)
					}
					if why := h.whyNot(load, cell, run[0], known[place]); why != "" {
						return fmt.Sprintf("cell %d of %s: %s", cell,
							describe(load.input, load.output), why)
					}
					cell++
				}
			}
		}
	}
	return ""
}

func min64(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
