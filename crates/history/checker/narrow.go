package main

import "github.com/anishathalye/porcupine"

// When a change happened is known better than that it did between its call and its return. A call
// that saw what it wrote came later. One that saw what had been there before a copy over the file
// came before that emptied it. Both follow from the rules, and leave fewer orders to search.

// narrowings are such bounds of the calls of a history.
type narrowings struct {
	// Of changes: when the first call returned that saw what they wrote.
	seen map[int64]int64
	// Of copies over files: when the last call began that saw the file as it was before.
	unseen map[int64]int64
}

func (h *history) narrowings() *narrowings {
	n := &narrowings{seen: map[int64]int64{}, unseen: map[int64]int64{}}
	byID := map[int64]*call{}
	var copies []*call
	for _, call := range h.calls {
		byID[call.input.ID] = call
		if call.input.Op == "copyin" {
			copies = append(copies, call)
		}
	}
	for _, call := range h.calls {
		for _, runs := range call.output.Runs {
			for _, run := range runs {
				if ret, isSeen := n.seen[run[0]]; !isSeen || call.ret() < ret {
					n.seen[run[0]] = call.ret()
				}
			}
		}
	}
	for _, copied := range copies {
		n.unseen[copied.input.ID] = copied.input.Call
		for h.isUnseenLater(n, copied, byID) {
		}
	}
	return n
}

// isUnseenLater says whether a call began later that saw the file as it was before it was copied
// over, and notes that. It saw what another one, the source, had written before the copy emptied it.
func (h *history) isUnseenLater(n *narrowings, copied *call, byID map[int64]*call) bool {
	last := n.unseen[copied.input.ID]
	for _, call := range h.calls {
		// a load may show what was there before for a while
		if call.input.Op == "load" || call.input.Call <= n.unseen[copied.input.ID] {
			continue
		}
		for _, runs := range call.output.Runs {
			for _, run := range runs {
				source := byID[run[0]]
				if source != nil && source.input.File == copied.input.File && source.ret() < last {
					n.unseen[copied.input.ID] = call.input.Call
				}
			}
		}
	}
	return n.unseen[copied.input.ID] > last
}

// narrow is an operation that happens within these bounds. Its times are counted twice as fine.
func (n *narrowings) narrow(operation porcupine.Operation) porcupine.Operation {
	id := operation.Input.(*input).ID
	if ret, isSeen := n.seen[id]; isSeen && 2*ret < operation.Return {
		operation.Return = 2 * ret
	}
	if call, isKnown := n.unseen[id]; isKnown && 2*call > operation.Call {
		operation.Call = 2 * call
	}
	return operation
}
