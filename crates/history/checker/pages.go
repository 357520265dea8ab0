package main

// Bytes of files that have doors through the pages of a kernel. What those doors may show is what
// docs/SEMANTICS.md promises of them under "Coherence", and no more:
//
//   - A call (read, size, ...) happens at one moment, as it does without such doors.
//   - A load by a page may show what was there before a change, until the call that made the change
//     has returned: the kernel is told to drop its page meanwhile. Each cell is loaded for itself.
//   - A read by libaio or io_uring ends where the file ended when its kernel last asked for the size.
//   - The kernel of another machine may show what was there before for one round trip more. Its loads
//     keep to the rule in loads.go, with that time.
//   - A copy of a file by another program consists of calls: each cell is read for itself. A copy
//     over a file consists of two changes: it is emptied, and then it is written. Other calls may
//     come between.
//   - A region shows what a page of the kernel of this machine does, by a stricter rule in loads.go
//     (docs/regions.md). A transaction on regions is one call, which reads zeros behind the end.
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
	// Copies over it that have emptied it, and have not written it; in the order in which they did.
	emptied []int64
	// What loads see; nil where all is kept that was there before a change.
	loaded map[loadedValue]bool
}

// What a load sees in a cell, of any file.
type loadedValue struct {
	cell  int
	value int64
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
	if a.file != b.file || len(a.old) != len(b.old) || len(a.open) != len(b.open) ||
		len(a.emptied) != len(b.emptied) {
		return false
	}
	for n := range a.emptied {
		if a.emptied[n] != b.emptied[n] {
			return false
		}
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
		// Where no load sees it, and nothing is kept that ends with this change, it makes no
		// difference. So states are equal that differ in nothing which a load sees.
		isKept := len(old) > 0 && old[len(old)-1].cell == cell
		if isKept || s.loaded == nil || s.loaded[loadedValue{cell, was}] {
			old = append(old, oldValue{cell, id, was})
		}
	}
	s.old = append(old, s.old[next:]...)
	s.file, s.open = file, raced(s.open, at, cells)
	return s
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
	s.old = old
	return s
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
	s.open = append(raced(s.open, i.At, i.Cells), store)
	return s
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
	s.file, s.open = file, open
	return true, s
}
