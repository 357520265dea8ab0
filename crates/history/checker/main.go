// The checker of recorded histories: is there an order of the calls that explains all that was
// seen, in which none comes before one that had returned when it began?
//
// It reads what nearside-history wrote, and prints one object of JSON. It says nothing of a history
// for which it did not find out in time but that it did not.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
)

// The verdicts on all histories of a run.
type verdicts struct {
	Histories  int      `json:"histories"`
	Calls      int      `json:"calls"`
	Unfinished int      `json:"unfinished"`
	Illegal    []string `json:"illegal"`
	// Which of them are illegal, counted from 0.
	IllegalNumbers []int `json:"illegal_numbers"`
	// Calls by each door.
	Doors   map[string]int `json:"doors"`
	Unknown []string       `json:"unknown"`
	// Histories of pages, and those of them of which every load keeps its rule, but the search for
	// an order of a sample of them with the calls did not end in time.
	Pages      int      `json:"pages"`
	Unsearched []string `json:"unsearched"`
}

// pagesTimeout limits that search: one that takes longer finds nothing, mostly.
const pagesTimeout = 10 * time.Second

func newVerdicts() verdicts {
	return verdicts{
		Illegal: []string{}, Unknown: []string{}, IllegalNumbers: []int{}, Doors: map[string]int{},
		Unsearched: []string{},
	}
}

func main() {
	timeout := flag.Duration("timeout", 60*time.Second, "for one history")
	pictures := flag.String("pictures", "", "directory for pictures of histories that have no order")
	explains := flag.Bool("explain", true, "say why a history has no order")
	flag.Parse()
	found := newVerdicts()
	for _, path := range flag.Args() {
		histories, err := readFile(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		for _, history := range histories {
			found.add(history, *timeout, *pictures, *explains)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(&found); err != nil {
		os.Exit(1)
	}
}

func (v *verdicts) add(history *history, timeout time.Duration, pictures string, explains bool) {
	v.Histories++
	v.Calls += len(history.calls)
	for _, call := range history.calls {
		if call.isUnfinished() {
			v.Unfinished++
		}
		v.Doors[history.door(call.input.Client)]++
	}
	if history.hasPages() {
		v.Pages++
		if timeout > pagesTimeout {
			timeout = pagesTimeout
		}
	}
	found, why := history.check(timeout)
	switch found {
	case porcupine.Unknown:
		if history.hasPages() {
			v.Unsearched = append(v.Unsearched, history.name()+": not searched to the end")
			break
		}
		v.Unknown = append(v.Unknown, history.name()+": not known")
	case porcupine.Illegal:
		if pictures != "" && !history.hasPages() {
			model := history.model()
			name := fmt.Sprintf("%d-%d.html", history.head.Seed, *history.head.History)
			_, info := porcupine.CheckOperationsVerbose(model, history.operations(), timeout)
			// the picture is only a help
			_ = porcupine.VisualizePath(model, info, filepath.Join(pictures, name))
		}
		words := history.name()
		if explains {
			words += ": " + why()
		}
		v.Illegal = append(v.Illegal, words)
		v.IllegalNumbers = append(v.IllegalNumbers, v.Histories-1)
	}
}

// explain finds the first return that no order explains: what begins of a history that has an order
// has one, too.
func explain(model porcupine.Model, operations []porcupine.Operation, timeout time.Duration) string {
	returns := returnsInOrder(operations)
	low, high := 0, len(returns)-1
	for low < high {
		middle := (low + high) / 2
		begin := until(operations, returns[middle].Return)
		if porcupine.CheckOperationsTimeout(model, begin, timeout) == porcupine.Illegal {
			high = middle
		} else {
			low = middle + 1
		}
	}
	last := returns[low]
	words := "no order explains " + describe(last.Input, last.Output)
	for _, other := range operations {
		if other.Call < last.Return && other.Return > last.Call && other != last {
			words += "; beside it " + describe(other.Input, other.Output)
		}
	}
	return words
}

// until is what had begun until then; what had not returned may have happened or not.
func until(operations []porcupine.Operation, moment int64) []porcupine.Operation {
	var begun []porcupine.Operation
	for _, operation := range operations {
		if operation.Call > moment {
			continue
		}
		if operation.Return > moment {
			if operation.Input.(*input).readsOnly() {
				continue
			}
			operation.Output = unfinished
			operation.Return = never
		}
		begun = append(begun, operation)
	}
	return begun
}
