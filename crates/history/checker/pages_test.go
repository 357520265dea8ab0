package main

import (
	"strings"
	"testing"
)

// pagesOf is a history of these lines, at doors through pages: caller 0 writes, 1 has mapped files, 2
// reads by libaio.
func pagesOf(t *testing.T, calls ...string) *history {
	t.Helper()
	h := lines(t, "pages", calls...)
	h.head.Doors = []string{"owner", "mapped", "aio"}
	return h
}

// Calls of a mapped door, and of another one.
const (
	loads3 = `{"id":65539,"client":1,"call":30,"op":"load","file":0,"at":0,"cells":2}`
	store  = `{"id":65541,"client":1,"call":50,"op":"store","file":0,"at":0,"cells":1,"read":false}`
	stored = `{"id":65541,"ret":60}`
	reads6 = `{"id":6,"call":70,"op":"read","file":0,"at":0,"cells":1}`
)

func loaded3(runs string) string { return `{"id":65539,"ret":40,"runs":[` + runs + `]}` }

func TestALoadShowsNothingOlderThanWhatHadReturned(t *testing.T) {
	expect(t, ok, pagesOf(t, writes1, returned1, loads3, loaded3("[[1,2]]")))
	expect(t, bad, pagesOf(t, writes1, returned1, loads3, loaded3("[[0,2]]")))
	// each cell for itself, while the call is under way, and after another door has seen it
	under := `{"id":1,"ret":35}`
	sees := `{"id":7,"call":12,"op":"read","file":0,"at":0,"cells":2}` + "\n" +
		`{"id":7,"ret":14,"runs":[[[1,2]]]}`
	for _, runs := range []string{"[[0,2]]", "[[1,2]]", "[[1,1],[0,1]]"} {
		expect(t, ok, pagesOf(t, writes1, sees, loads3, loaded3(runs), under))
	}
	// a call does not
	expect(t, bad, pagesOf(t, writes1, sees, reads3, `{"id":3,"ret":40,"runs":[[[0,2]]]}`, under))
}

func TestALoadShowsNothingThatWasNeverThere(t *testing.T) {
	for _, runs := range []string{"[[2,2]]", "[[-1,2]]"} {
		expect(t, bad, pagesOf(t, writes1, returned1, loads3, loaded3(runs)))
	}
	later := `{"id":2,"call":50,"op":"write","file":0,"at":0,"cells":2}`
	expect(t, bad, pagesOf(t, writes1, returned1, loads3, loaded3("[[2,2]]"), later, `{"id":2,"ret":60}`))
}

func TestALoadFollowsTheOrderThatCallsShow(t *testing.T) {
	// both at once: the second came last, as a read says
	both := []string{writes1, returned1, writes2, returned2,
		`{"id":3,"call":24,"op":"read","file":0,"at":0,"cells":2}`, `{"id":3,"ret":26,"runs":[[[2,2]]]}`}
	expect(t, ok, pagesOf(t, append(both, loads3, loaded3("[[2,2]]"))...))
	expect(t, bad, pagesOf(t, append(both, loads3, loaded3("[[1,2]]"))...))
}

func TestAStoreIsSeenWhenItHasEnded(t *testing.T) {
	grown := []string{writes1, returned1}
	answer := func(value string) string { return `{"id":6,"ret":80,"runs":[[[` + value + `,1]]]}` }
	expect(t, ok, pagesOf(t, append(grown, store, stored, reads6, answer("65541"))...))
	expect(t, bad, pagesOf(t, append(grown, store, stored, reads6, answer("1"))...))
	expect(t, bad, pagesOf(t, append(grown, store, stored, reads6, answer("-1"))...))
	// before, it may be seen, or not, or in part
	for _, value := range []string{"1", "65541", "-1"} {
		expect(t, ok, pagesOf(t, append(grown, store, `{"id":65541,"ret":90}`, reads6, answer(value))...))
	}
	expect(t, bad, pagesOf(t, append(grown, store, `{"id":65541,"ret":90}`, reads6, answer("0"))...))
	// what it read itself
	read := `{"id":65541,"ret":60,"runs":[[[1,1]]]}`
	expect(t, bad, pagesOf(t, append(grown, store, read)...))
}

func TestOfAStoreAndAWriteAtOnceEitherMayWin(t *testing.T) {
	write := `{"id":8,"call":55,"op":"write","file":0,"at":0,"cells":1}`
	after := `{"id":9,"call":62,"op":"write","file":0,"at":0,"cells":1}` + "\n" + `{"id":9,"ret":64}`
	base := []string{writes1, returned1, store, write, stored, `{"id":8,"ret":61}`}
	for _, value := range []string{"8", "65541", "-1"} {
		seen := `{"id":6,"ret":80,"runs":[[[` + value + `,1]]]}`
		expect(t, ok, pagesOf(t, append(base, reads6, seen)...))
		expect(t, bad, pagesOf(t, append(base, after, reads6, seen)...))
	}
}

func TestALoadMayBeLateWhereAServiceWasKilled(t *testing.T) {
	h := pagesOf(t, writes1, returned1, loads3, loaded3("[[0,2]]"))
	h.head.Kills = [][2]int64{{15, 16}}
	expect(t, ok, h)
	h = pagesOf(t, writes1, returned1, loads3, loaded3("[[0,2]]"))
	h.head.Kills = [][2]int64{{25, 26}}
	expect(t, bad, h)
}

func TestALoadAtAnotherMachineIsLateAndShowsNothingElse(t *testing.T) {
	at := func(call, runs string) *history {
		h := pagesOf(t, writes1, returned1,
			`{"id":9,"client":3,"call":`+call+`,"op":"load","file":0,"at":0,"cells":1}`,
			`{"id":9,"ret":900000000,"runs":[`+runs+`]}`)
		h.head.Doors = append(h.head.Doors, "awaymapped")
		return h
	}
	expect(t, ok, at("30", "[[0,1]]"))
	expect(t, ok, at("800000000", "[[1,1]]"))
	expect(t, bad, at("800000000", "[[0,1]]"))
	expect(t, bad, at("30", "[[7,1]]"))
}

func TestAReadByLibaioEndsEarlyAndOthersDoNot(t *testing.T) {
	read := func(client string) string {
		return `{"id":3,"client":` + client + `,"call":30,"op":"read","file":0,"at":0,"cells":2}`
	}
	for runs, isWhole := range map[string]bool{"[]": false, "[[1,1]]": false, "[[1,2]]": true} {
		returned := `{"id":3,"ret":40,"runs":[` + runs + `]}`
		expect(t, ok, pagesOf(t, writes1, returned1, read("2"), returned))
		verdict := bad
		if isWhole {
			verdict = ok
		}
		expect(t, verdict, pagesOf(t, writes1, returned1, read("0"), returned))
	}
	expect(t, bad, pagesOf(t, writes1, returned1, read("2"), `{"id":3,"ret":40,"runs":[[[0,1]]]}`))
}

func TestALoadThatNothingExplainsIsNamed(t *testing.T) {
	h := pagesOf(t, writes1, returned1, loads3, loaded3("[[0,2]]"))
	_, why := h.check(soon)
	if words := why(); !strings.HasPrefix(words, "cell 0 of 1:load") {
		t.Fatal(words)
	}
}
