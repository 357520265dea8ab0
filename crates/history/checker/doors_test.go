package main

import "testing"

// Calls of caller 1, who has regions, and of caller 3, who copies over files.
const (
	copiesIn    = `{"id":9,"client":3,"call":50,"op":"copyin","file":0,"cells":1}`
	copiedIn    = `{"id":9,"ret":80}`
	loadsBefore = `{"id":65538,"client":1,"call":14,"op":"load","file":0,"at":0,"cells":1}`
)

// doorsOf is a history of these lines: caller 0 writes, 1 has regions, 2 maps files, 3 copies.
func doorsOf(t *testing.T, calls ...string) *history {
	t.Helper()
	h := lines(t, "pages", calls...)
	h.head.Doors = []string{"owner", "regions", "mapped", "copiesin"}
	return h
}

func TestACopyOverAFileEmptiesItAndFillsIt(t *testing.T) {
	at := func(op, call, answer string) []string {
		return []string{writes1, returned1, copiesIn, copiedIn,
			`{"id":6,"call":` + call + `,"op":"` + op + `","file":0,"at":0,"cells":2}`,
			`{"id":6,"ret":100,` + answer + `}`}
	}
	// while it runs: as before, empty, or as behind it
	for _, runs := range []string{"[[1,2]]", "[]", "[[9,1]]"} {
		expect(t, ok, doorsOf(t, at("read", "60", `"runs":[`+runs+`]`)...))
	}
	for _, runs := range []string{"[[9,1],[1,1]]", "[[9,1],[0,1]]", "[[0,2]]", "[[9,2]]"} {
		expect(t, bad, doorsOf(t, at("read", "60", `"runs":[`+runs+`]`)...))
	}
	expect(t, ok, doorsOf(t, at("read", "90", `"runs":[[[9,1]]]`)...))
	for _, runs := range []string{"[[1,2]]", "[]", "[[0,1]]"} {
		expect(t, bad, doorsOf(t, at("read", "90", `"runs":[`+runs+`]`)...))
	}
	for _, size := range []string{"2", "0", "1"} {
		expect(t, ok, doorsOf(t, at("size", "60", `"size":`+size)...))
	}
	expect(t, bad, doorsOf(t, at("size", "90", `"size":0`)...))
	expect(t, bad, doorsOf(t, at("size", "60", `"size":3`)...))
}

func TestACopyOverAFileIsFilledBehindWhatCameBetween(t *testing.T) {
	reads := func(id, call, runs string) string {
		return `{"id":` + id + `,"call":` + call + `,"op":"read","file":0,"at":0,"cells":4}` + "\n" +
			`{"id":` + id + `,"ret":` + call + `,"runs":[` + runs + `]}`
	}
	appends := `{"id":8,"call":60,"op":"append","file":0,"cells":2}` + "\n" + `{"id":8,"ret":62}`
	base := []string{writes1, returned1, copiesIn, appends, copiedIn}
	// an append before it, between, and behind it
	for _, runs := range []string{"[[9,1]]", "[[9,1],[8,1]]", "[[9,1],[8,2]]"} {
		expect(t, ok, doorsOf(t, append(base, reads("6", "90", runs))...))
	}
	// it is not empty again when it was filled
	expect(t, bad, doorsOf(t, append(base, reads("6", "64", "[[9,1]]"), reads("7", "66", "[]"))...))
	expect(t, ok, doorsOf(t, append(base, reads("6", "64", "[]"), reads("7", "66", "[[9,1]]"))...))
}

func TestACopyOverAFileThatWasKilledMayHaveEmptiedIt(t *testing.T) {
	allowed := map[string]bool{"[[1,2]]": true, "[]": true, "[[9,1]]": true, "[[9,2]]": false}
	for runs, verdict := range allowed {
		expected := bad
		if verdict {
			expected = ok
		}
		expect(t, expected, doorsOf(t, writes1, returned1, copiesIn,
			`{"id":6,"call":90,"op":"read","file":0,"at":0,"cells":2}`,
			`{"id":6,"ret":100,"runs":[`+runs+`]}`))
	}
}

func TestALoadShowsACopyOverTheFileWhenItHasReturned(t *testing.T) {
	at := func(client, call, runs string) *history {
		return doorsOf(t, writes1, returned1, copiesIn, copiedIn,
			`{"id":7,"client":`+client+`,"call":`+call+`,"op":"load","file":0,"at":0,"cells":1}`,
			`{"id":7,"ret":100,"runs":[`+runs+`]}`)
	}
	for _, client := range []string{"1", "2"} {
		for _, runs := range []string{"[[1,1]]", "[[0,1]]", "[[9,1]]"} {
			expect(t, ok, at(client, "60", runs))
		}
		expect(t, ok, at(client, "90", "[[9,1]]"))
		for _, runs := range []string{"[[1,1]]", "[[0,1]]"} {
			expect(t, bad, at(client, "90", runs))
		}
	}
}

func TestARegionShowsAChangeWhenItsCallHasReturned(t *testing.T) {
	expect(t, ok, doorsOf(t, writes1, returned1, loads3, loaded3("[[1,2]]")))
	expect(t, bad, doorsOf(t, writes1, returned1, loads3, loaded3("[[0,2]]")))
	expect(t, bad, doorsOf(t, writes1, returned1, loads3, loaded3("[[-1,2]]")))
	// however long it waited for kernels
	late := func(client string) *history {
		return doorsOf(t, `{"id":1,"call":10,"op":"write","file":0,"at":0,"cells":2}`,
			`{"id":1,"ret":2000000000}`,
			`{"id":7,"client":`+client+`,"call":2000000010,"op":"load","file":0,"at":0,"cells":2}`,
			`{"id":7,"ret":2000000020,"runs":[[[0,2]]]}`)
	}
	expect(t, bad, late("1"))
	expect(t, ok, late("2"))
	// and a truncation, and a punch
	truncates, punches := `"op":"truncate","cells":0`, `"op":"punch","at":0,"cells":2`
	for _, op := range []string{truncates, punches} {
		expect(t, bad, doorsOf(t, writes1, returned1,
			`{"id":2,"call":22,"file":0,`+op+`}`, `{"id":2,"ret":24}`, loads3, loaded3("[[1,2]]")))
	}
}

func TestARegionDoesNotGoBack(t *testing.T) {
	under := `{"id":1,"ret":50}`
	first := `{"id":65538,"ret":20,"runs":[[[1,1]]]}`
	expect(t, bad, doorsOf(t, writes1, loadsBefore, first, loads3, loaded3("[[0,2]]"), under))
	expect(t, ok, doorsOf(t, writes1, loadsBefore, first, loads3, loaded3("[[1,1],[0,1]]"), under))
	// what a mapping may show nothing is said of but when the call has returned
	h := doorsOf(t, writes1, loadsBefore, first, loads3, loaded3("[[0,2]]"), under)
	h.head.Doors[1] = "mapped"
	expect(t, ok, h)
}

func TestARegionMayBeLateWhereItsServiceWasKilledAndNoLongerThanItTakesToHear(t *testing.T) {
	at := func(call string) *history {
		h := doorsOf(t, writes1, returned1,
			`{"id":7,"client":1,"call":`+call+`,"op":"load","file":0,"at":0,"cells":1}`,
			`{"id":7,"ret":900000000,"runs":[[[0,1]]]}`)
		h.head.Kills = [][2]int64{{15, 18}}
		return h
	}
	expect(t, ok, at("30"))
	expect(t, bad, at("800000000"))
}

func TestATransactionOnARegionHappensAtOneMoment(t *testing.T) {
	transacts := `{"id":65540,"client":1,"call":50,"op":"transact","reads":[],` +
		`"writes":[{"file":0,"at":0,"cells":1},{"file":0,"at":3,"cells":1}]}`
	transacted := `{"id":65540,"ret":80}`
	reads := func(call, runs string) []string {
		return []string{writes1, returned1, transacts, transacted,
			`{"id":6,"call":` + call + `,"op":"read","file":0,"at":0,"cells":4}`,
			`{"id":6,"ret":90,"runs":[` + runs + `]}`}
	}
	expect(t, ok, doorsOf(t, reads("60", "[[1,2]]")...))
	expect(t, ok, doorsOf(t, reads("60", "[[65540,1],[1,1],[0,1],[65540,1]]")...))
	expect(t, bad, doorsOf(t, reads("60", "[[65540,1],[1,1]]")...))
	expect(t, bad, doorsOf(t, reads("85", "[[1,2]]")...))
	// what it reads, with zeros behind the end; what conflicted did not happen
	at := func(answer string) *history {
		return doorsOf(t, writes1, returned1,
			`{"id":65540,"client":1,"call":50,"op":"transact","reads":[{"file":0,"at":1,"cells":2}],`+
				`"writes":[{"file":0,"at":0,"cells":1}]}`, `{"id":65540,"ret":60,`+answer+`}`,
			`{"id":6,"call":70,"op":"read","file":0,"at":0,"cells":1}`,
			`{"id":6,"ret":90,"runs":[[[65540,1]]]}`)
	}
	expect(t, ok, at(`"runs":[[[1,1],[0,1]]]`))
	expect(t, bad, at(`"runs":[[[1,2]]]`))
	expect(t, bad, at(`"conflict":true`))
}

func TestWhatWasSeenSaysWhenAChangeHappened(t *testing.T) {
	// a copy that began at 50 and ended at 80: at 60 a call saw what was there before, at 66 one saw it
	sees := func(id, call, ret, runs string) string {
		return `{"id":` + id + `,"call":` + call + `,"op":"read","file":0,"at":0,"cells":1}` + "\n" +
			`{"id":` + id + `,"ret":` + ret + `,"runs":[` + runs + `]}`
	}
	h := doorsOf(t, writes1, returned1, copiesIn, copiedIn, sees("6", "60", "61", "[[1,1]]"),
		sees("7", "65", "66", "[[9,1]]"))
	for _, operation := range h.pageOperations() {
		in := operation.Input.(*input)
		if in.ID == 9 && in.Op != "end" && (operation.Call != 120 || operation.Return != 132) {
			t.Fatalf("%s from %d to %d", in.Op, operation.Call, operation.Return)
		}
	}
	expect(t, ok, h)
	// a load may show what was there before when it was emptied
	h.calls[2].input.Op = "load"
	for _, operation := range h.pageOperations() {
		if in := operation.Input.(*input); in.Op == "empty" && operation.Call != 100 {
			t.Fatalf("%s from %d", in.Op, operation.Call)
		}
	}
}
