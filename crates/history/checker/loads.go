package main

import "fmt"

// What all loads by pages must keep, cell by cell, whatever the order of calls: a value was there,
// and no change that came after it had returned when the load began. Loads from a region keep more:
// a call never returns before regions of its machine show what it changed, however long that takes,
// and no region goes back to what was there before something that it has shown.

// A change is a call that changes files, or a part of one.
type change struct {
	*call
	// The part of the same call that came before.
	after *change
}

// changes are those that a call consists of.
func (c *call) changes() []*change {
	var all []*change
	for _, op := range stepsOf(c.input) {
		step := *c.input
		step.Op = op
		part := &change{call: &call{input: &step, output: c.output}}
		if len(all) > 0 {
			part.after = all[len(all)-1]
		}
		all = append(all, part)
	}
	return all
}

// isAfter says whether it surely happened later than another one.
func (c *change) isAfter(other *change) bool {
	return c.input.Call > other.ret() || c.after == other
}

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
	case "fill":
		return cell < i.Cells, cell < i.Cells
	case "empty":
		return true, false
	case "transact":
		for _, write := range i.Writes {
			if cell >= write.At && cell < write.At+write.Cells {
				return true, true
			}
		}
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
	switch c.input.Op {
	case "punch", "truncate", "empty":
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
	all []*change
	// From when on it may hold anything, as a store and another change were under way at once.
	raceFrom int64
}

func (h *history) changesOf(file, cell int) *cellChanges {
	changes := &cellChanges{raceFrom: never}
	for _, call := range h.calls {
		if call.output.Errno != 0 || call.output.Conflict {
			continue
		}
		for _, change := range call.changes() {
			if may, _ := change.touches(file, cell); may {
				changes.all = append(changes.all, change)
			}
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

// replacedFrom is from when on a load no longer shows what was in a cell before a change.
func (h *history) replacedFrom(load *call, cell int, change *change) int64 {
	may, surely := change.touches(load.input.File, cell)
	switch {
	case h.isAtRegion(load.input.Client) && may && (surely || change.input.Op != "append"):
		return h.shownInRegionsFrom(change.output)
	case !surely:
		return never
	case h.isAway(load.input.Client):
		return add(h.shownFrom(change.input, change.output), momentMax)
	}
	return h.shownFrom(change.input, change.output)
}

// whyNot says why a load cannot have seen this value in a cell; nothing, if it can. `shown` are
// changes that the same region has shown there before.
func (h *history) whyNot(load *call, cell int, value int64, changes *cellChanges,
	shown map[int64]bool) string {
	began, returned := load.input.Call, load.ret()
	if changes.raceFrom < returned {
		return ""
	}
	sources := []*change{}
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
		sources = append(sources, &change{call: &call{input: &input{}, output: &output{}}})
	}
	if len(sources) == 0 {
		return "it was never there"
	}
	why := ""
	for _, source := range sources {
		why = ""
		for _, change := range changes.all {
			switch {
			case !change.isAfter(source):
			case h.replacedFrom(load, cell, change) < began:
				why = fmt.Sprintf("it was replaced by #%d, which had returned", change.input.ID)
			case shown[change.input.ID] && change.gives(change.input.ID):
				why = fmt.Sprintf("it was replaced by #%d, which was shown before", change.input.ID)
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
	shown := map[[3]int]map[int64]bool{}
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
					by := [3]int{load.input.Client, load.input.File, cell}
					why := h.whyNot(load, cell, run[0], known[place], shown[by])
					if why != "" {
						return fmt.Sprintf("cell %d of %s: %s", cell,
							describe(load.input, load.output), why)
					}
					if h.isAtRegion(load.input.Client) {
						if shown[by] == nil {
							shown[by] = map[int64]bool{}
						}
						shown[by][run[0]] = true
					}
					cell++
				}
			}
		}
	}
	return ""
}

// add is a moment later, or never.
func add(moment, later int64) int64 {
	if moment == never {
		return never
	}
	return moment + later
}

func min64(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
