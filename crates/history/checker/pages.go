package main

import (
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"
)

// Bytes of files that have doors through the pages of a kernel. What those doors may show is what
// docs/SEMANTICS.md promises of them under "Coherence", and no more:
//
//   - A call (read, size, ...) happens at one moment, as it does without such doors.
//   - A load by a page may show what was there before a change, until the call that made the change
//     has returned: the kernel is told to drop its page meanwhile. Each cell is loaded for itself.
//   - A read by libaio or io_uring ends where the file ended when its kernel last asked for the size.
//   - The kernel of another machine may show what was there before for one round trip more. Its loads
//     keep to the rule in loads.go, with that time.
//   - A copy of a file by another program consists of calls: each cell is read for itself.
//   - A store by a mapping is under way until msync has returned, or a read at the same mount.
//     Meanwhile any door may show the cell as before, as after, or in part. Where another change
//     of the cell is under way at the same time, either may win, byte by byte: then the cell may
//     hold anything until it is changed again.
//
// So a change takes two steps here: it happens, and its end is that of what was there before. A
// store takes two, too: it begins, and it ends. Ends, and beginnings of stores, are no choice: they
// are operations at the moments that were recorded.

// wild stands for a cell that may hold anything.
const wild = int64(0xffffffff)

// What a cell held before a change.
type oldValue struct {
	cell int
	// Of the change.
	id    int64
	value int64
}

// Stores that are under way.
type openStore struct {
	id        int64
	at, cells int
	// Which of the cells another change was made to meanwhile, a bit for each.
	raced uint64
}

// The state of a file. It is never changed, but copied.
type pages struct {
	file string
	// By cells, and for each cell in the order of the changes. So changes of different cells come to
	// the same state in any order.
	old  []oldValue
	open []openStore
}

func valueAt(file string, cell int) int64 {
	if cell >= cellsOf(file) {
		return 0
	}
	at := cell * cellBytes
	return int64(file[at]) | int64(file[at+1])<<8 | int64(file[at+2])<<16 | int64(file[at+3])<<24
}

func equalPages(one, other interface{}) bool {
	a, b := one.(pages), other.(pages)
	if a.file != b.file || len(a.old) != len(b.old) || len(a.open) != len(b.open) {
		return false
	}
	for n := range a.open {
		if a.open[n] != b.open[n] {
			return false
		}
	}
	for n := range a.old {
		if a.old[n] != b.old[n] {
			return false
		}
	}
	return true
}

// holds says whether a call, or a load, may see this value in a cell.
func (s pages) holds(cell int, value int64, isLoad bool) bool {
	now := valueAt(s.file, cell)
	if now == value || now == wild {
		return true
	}
	for _, store := range s.open {
		if cell < store.at || cell >= store.at+store.cells {
			continue
		}
		// -1: neither this nor that
		if store.raced>>(cell-store.at)&1 == 1 || value == store.id || value == -1 {
			return true
		}
	}
	for n := 0; isLoad && n < len(s.old); n++ {
		if s.old[n].cell == cell && s.old[n].value == value {
			return true
		}
	}
	return false
}

// shows says whether a call may have read these runs from `at` on; all of the file, if no more cells
// were asked for than there are, and `isWhole`.
func (s pages) shows(at, cells int, runs [][2]int64, isWhole bool) bool {
	cells = max(0, min(cells, cellsOf(s.file)-at))
	cell := at
	for _, run := range runs {
		for i := int64(0); i < run[1]; i++ {
			if !s.holds(cell, run[0], false) {
				return false
			}
			cell++
		}
	}
	return cell == at+cells || !isWhole && cell < at+cells
}

// changed is the state when a call has made `file` of it; it touched these cells.
func (s pages) changed(id int64, file string, at, cells int) pages {
	old := make([]oldValue, 0, len(s.old)+cells)
	next := 0
	for cell := 0; cell < max(cellsOf(s.file), cellsOf(file)); cell++ {
		was := valueAt(s.file, cell)
		if was == valueAt(file, cell) {
			continue
		}
		for next < len(s.old) && s.old[next].cell <= cell {
			old = append(old, s.old[next])
			next++
		}
		old = append(old, oldValue{cell, id, was})
	}
	return pages{file, append(old, s.old[next:]...), raced(s.open, at, cells)}
}

// raced are the stores when these cells are changed, too.
func raced(open []openStore, at, cells int) []openStore {
	open = append([]openStore(nil), open...)
	for n := range open {
		for cell := max(at, open[n].at); cell < min(at+cells, open[n].at+open[n].cells); cell++ {
			open[n].raced |= 1 << (cell - open[n].at)
		}
	}
	return open
}

// ended is the state when the call of a change has returned: nothing shows any more what was there
// before it.
func (s pages) ended(id int64) pages {
	last := map[int]int{}
	for n, before := range s.old {
		if before.id == id {
			last[before.cell] = n
		}
	}
	old := make([]oldValue, 0, len(s.old))
	for n, before := range s.old {
		if at, isChanged := last[before.cell]; !isChanged || n > at {
			old = append(old, before)
		}
	}
	return pages{s.file, old, s.open}
}

// begun is the state when a store is under way.
func (s pages) begun(i *input) pages {
	store := openStore{id: i.ID, at: i.At, cells: i.Cells}
	for cell := i.At; cell < i.At+i.Cells; cell++ {
		for _, before := range s.old {
			if before.cell == cell {
				store.raced |= 1 << (cell - i.At)
			}
		}
		for _, other := range s.open {
			if cell >= other.at && cell < other.at+other.cells {
				store.raced |= 1 << (cell - i.At)
			}
		}
	}
	return pages{s.file, s.old, append(raced(s.open, i.At, i.Cells), store)}
}

// stored is the state when a store has ended, which may have read what it stored.
func (s pages) stored(i *input, o *output) (bool, pages) {
	open := []openStore{}
	var store openStore
	for _, other := range s.open {
		if other.id == i.ID {
			store = other
		} else {
			open = append(open, other)
		}
	}
	if o.Runs != nil {
		now := s
		now.file = written(s.file, i.At, i.Cells, i.ID)
		for cell := i.At; cell < i.At+i.Cells; cell++ {
			if store.raced>>(cell-i.At)&1 == 1 {
				now.file = written(now.file, cell, 1, wild)
			}
		}
		now.open = nil
		if len(o.Runs) != 1 || !now.shows(i.At, i.Cells, o.Runs[0], true) {
			return false, s
		}
	}
	file := s.file
	for cell := i.At; cell < i.At+i.Cells; cell++ {
		value := i.ID
		if store.raced>>(cell-i.At)&1 == 1 {
			value = wild
		}
		file = written(file, cell, 1, value)
	}
	return true, pages{file, s.old, open}
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
		cell := i.At
		for _, run := range o.Runs[0] {
			for n := int64(0); n < run[1]; n++ {
				if !s.holds(cell, run[0], i.Op == "load") {
					return false, s
				}
				cell++
			}
		}
		return true, s
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
		case in.Op == "load" && h.isAway(in.Client) && out.Errno == 0:
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
			all = append(all, operation)
			if shown := h.shownFrom(in, out); shown != never {
				all = append(all, at(in, "end", 2*shown+1, &output{}))
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Call < all[j].Call })
	return all
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

// pagesModel is that of bytes and sizes where there are doors through pages.
func pagesModel() porcupine.Model {
	return porcupine.Model{
		Init:              func() interface{} { return pages{} },
		Step:              stepPages,
		Equal:             equalPages,
		Partition:         byFile,
		DescribeOperation: describe,
		DescribeState: func(state interface{}) string {
			return fmt.Sprintf("%d cells", cellsOf(state.(pages).file))
		},
	}
}
