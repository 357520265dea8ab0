package main

import (
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"
)

// The steps of a history of pages: what each does to a file's state, and when it may happen.

// holdsAll says whether a load, or a copy, may see these runs from `cell` on.
func (s pages) holdsAll(cell int, runs [][2]int64, isLoad bool) bool {
	for _, run := range runs {
		for n := int64(0); n < run[1]; n++ {
			if !s.holds(cell, run[0], isLoad) {
				return false
			}
			cell++
		}
	}
	return true
}

// emptiedBy is the state when a copy over the file has emptied it.
func (s pages) emptiedBy(id int64) pages {
	s = s.changed(id, "", 0, cellsOf(s.file))
	s.emptied = append(append([]int64{}, s.emptied...), id)
	return s
}

// filledBy is the state when a copy over the file has written it. It has emptied it before.
func (s pages) filledBy(i *input) (bool, pages) {
	others := []int64{}
	for _, id := range s.emptied {
		if id != i.ID {
			others = append(others, id)
		}
	}
	if len(others) == len(s.emptied) {
		return false, s
	}
	s = s.changed(i.ID, written(s.file, 0, i.Cells, i.ID), 0, i.Cells)
	s.emptied = others
	return true, s
}

// transacted is the state when a transaction has happened. It reads zeros behind the end.
func (s pages) transacted(i *input, o *output) (bool, pages) {
	if !o.Unknown && len(o.Runs) != len(i.Reads) {
		return false, s
	}
	for n := range o.Runs {
		if !s.holdsAll(i.Reads[n].At, o.Runs[n], false) {
			return false, s
		}
	}
	for _, write := range i.Writes {
		s = s.changed(i.ID, written(s.file, write.At, write.Cells, i.ID), write.At, write.Cells)
	}
	return true, s
}

func stepPages(state, in, out interface{}) (bool, interface{}) {
	s, i, o := state.(pages), in.(*input), out.(*output)
	if !o.Unknown && o.Errno != 0 {
		// none of these calls may fail
		return false, s
	}
	length := cellsOf(s.file)
	switch i.Op {
	case "write":
		return true, s.changed(i.ID, written(s.file, i.At, i.Cells, i.ID), i.At, i.Cells)
	case "append":
		grown := written(s.file, length, i.Cells, i.ID)
		return o.Size == nil || *o.Size == length, s.changed(i.ID, grown, length, i.Cells)
	case "truncate":
		file := string(resized(s.file, i.Cells))
		return true, s.changed(i.ID, file, i.Cells, max(0, length-i.Cells))
	case "punch":
		cells := min(i.Cells, length-i.At)
		if cells <= 0 {
			return true, s.changed(i.ID, s.file, 0, 0)
		}
		return true, s.changed(i.ID, written(s.file, i.At, cells, 0), i.At, cells)
	case "read":
		return len(o.Runs) == 1 && s.shows(i.At, i.Cells, o.Runs[0], !i.endsEarly), s
	case "size":
		return o.Size != nil && *o.Size == length, s
	case "load", "copy":
		return s.holdsAll(i.At, o.Runs[0], i.Op == "load"), s
	case "transact":
		return s.transacted(i, o)
	case "empty":
		return true, s.emptiedBy(i.ID)
	case "fill":
		return s.filledBy(i)
	case "end":
		return true, s.ended(i.ID)
	case "begin-store":
		return true, s.begun(i)
	case "end-store":
		ok, stored := s.stored(i, o)
		return ok, stored
	}
	return false, s
}

// Runs of a load that are looked at together with all else.
const runsOfLoad = 2

// copiesIn says whether files were copied over. Then loads are looked at in loads.go, and here only
// by when they show changes (narrow.go): with what a copy hides there are too many orders to search.
func (h *history) copiesIn() bool {
	for _, call := range h.calls {
		if call.input.Op == "copyin" {
			return true
		}
	}
	return false
}

// pageOperations is what has a meaning where there are doors through pages: steps, as above. Times
// are counted twice as fine: an end comes after its call has returned, and before what begins then.
func (h *history) pageOperations() []porcupine.Operation {
	var all []porcupine.Operation
	at := func(in *input, op string, time int64, out *output) porcupine.Operation {
		step := *in
		step.Op = op
		return porcupine.Operation{
			ClientId: in.Client, Input: &step, Call: time, Output: out, Return: time,
		}
	}
	known := h.narrowings()
	copiesIn := h.copiesIn()
	for _, operation := range h.operations() {
		in, out := operation.Input.(*input), operation.Output.(*output)
		operation.Call *= 2
		if operation.Return != never {
			operation.Return *= 2
		}
		switch {
		case in.Op == "store":
			all = append(all, at(in, "begin-store", operation.Call-1, &output{}))
			if operation.Return != never {
				all = append(all, at(in, "end-store", operation.Return+1, out))
			}
		case in.Op == "load" && out.Errno == 0 &&
			(copiesIn || h.isAway(in.Client) || h.mayBeDeaf(in, out)):
			// loads.go has their rule
		case in.isCellwise() && out.Errno == 0:
			for _, part := range partsOf(in, out) {
				operation.Input, operation.Output = part.input, part.output
				all = append(all, operation)
			}
		case in.readsOnly():
			door := h.door(in.Client)
			in.endsEarly = door == "aio" || door == "uring"
			all = append(all, operation)
		default:
			for _, op := range stepsOf(in) {
				step := *in
				step.Op = op
				operation.Input = &step
				all = append(all, known.narrow(operation))
			}
			if shown := h.shownFrom(in, out); shown != never {
				all = append(all, at(in, "end", 2*shown+1, &output{}))
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Call < all[j].Call })
	return all
}

// stepsOf are the changes that a call consists of, each of which happens at one moment.
func stepsOf(in *input) []string {
	if in.Op == "copyin" {
		return []string{"empty", "fill"}
	}
	return []string{in.Op}
}

// partsOf is some of the runs of a load, each as a load of its own. Cells of one call's bytes have
// them at one time, and lose them one by one: they may be looked at together. Zeros come and go,
// and so do parts of stores: of those one cell is looked at.
func partsOf(in *input, out *output) []*call {
	var parts []*call
	if len(out.Runs) != 1 {
		return nil
	}
	runs := out.Runs[0]
	cell := in.At
	for n, run := range runs {
		wanted := (n*runsOfLoad)/len(runs) != ((n+1)*runsOfLoad)/len(runs) || len(runs) <= runsOfLoad
		if wanted {
			part := *in
			part.At, part.Cells = cell, int(run[1])
			if run[0] <= 0 {
				part.At, part.Cells = cell+int(in.ID%run[1]), 1
			}
			runs := [][][2]int64{{{run[0], int64(part.Cells)}}}
			parts = append(parts, &call{input: &part, output: &output{Ret: out.Ret, Runs: runs}})
		}
		cell += int(run[1])
	}
	return parts
}

// Longest time for which a call waits until kernels have dropped their pages, less what clocks may
// differ by.
const waitMax = int64(1_900_000_000)

// How long a mapping may show what was there before a change where its call does not wait for that,
// with time for a machine that is busy.
const momentMax = int64(200_000_000)

// shownFrom is from when on all doors show a change: when its call has returned. It is a moment later
// where a service was killed meanwhile, and where the call waited as long as it ever does. So it is of
// a truncation at another machine, which holds that one's pages. It is never where the call did not
// return.
func (h *history) shownFrom(in *input, out *output) int64 {
	if out.Unknown {
		return never
	}
	isLate := out.Ret-in.Call >= waitMax || in.Op == "truncate" && h.isAway(in.Client)
	for _, kill := range h.head.Kills {
		isLate = isLate || in.Call <= kill[1] && out.Ret >= kill[0]
	}
	if isLate {
		return out.Ret + momentMax
	}
	return out.Ret
}

// shownInRegionsFrom is from when on all regions of this machine show a change: when its call has
// returned. A process does not know at once that its service has died: until it does, regions show
// what the dead one left there. That takes no longer than a mapping may be late.
func (h *history) shownInRegionsFrom(out *output) int64 {
	if out.Unknown {
		return never
	}
	shown := out.Ret
	for _, kill := range h.head.Kills {
		if out.Ret >= kill[0] && shown < kill[0]+momentMax {
			shown = kill[0] + momentMax
		}
	}
	return shown
}

// mayBeDeaf says whether a call was at a region of a process that may not know yet that its
// service has died.
func (h *history) mayBeDeaf(in *input, out *output) bool {
	isDeaf := false
	for _, kill := range h.head.Kills {
		isDeaf = isDeaf || out.Ret >= kill[0] && in.Call <= kill[0]+momentMax
	}
	return isDeaf && h.isAtRegion(in.Client)
}

// loadedBy is what loads see; nil where there are stores, which ask what was there before.
func loadedBy(operations []porcupine.Operation) map[loadedValue]bool {
	loaded := map[loadedValue]bool{}
	for _, operation := range operations {
		in, out := operation.Input.(*input), operation.Output.(*output)
		if in.Op == "begin-store" {
			return nil
		}
		if in.Op != "load" || out.Errno != 0 {
			continue
		}
		cell := in.At
		for _, run := range out.Runs[0] {
			for n := int64(0); n < run[1]; n++ {
				loaded[loadedValue{cell, run[0]}] = true
				cell++
			}
		}
	}
	return loaded
}

// pagesModel is that of bytes and sizes where there are doors through pages.
func pagesModel(operations []porcupine.Operation) porcupine.Model {
	loaded := loadedBy(operations)
	return porcupine.Model{
		Init:              func() interface{} { return pages{loaded: loaded} },
		Step:              stepPages,
		Equal:             equalPages,
		Partition:         byFile,
		DescribeOperation: describe,
		DescribeState: func(state interface{}) string {
			return fmt.Sprintf("%d cells", cellsOf(state.(pages).file))
		},
	}
}
