package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Errors that calls on names answer.
const (
	noEntry = 2
	exists  = 17
	stale   = 116
)

// Four names and the inode of each; 0: there is none. Negative: that which the call of this number
// made, which did not live to say which it is.
type names [4]int64

func place(name string) int { return int(name[0] - 'a') }

func (n names) links(ino int64) int {
	count := 0
	for _, other := range n {
		if other == ino {
			count++
		}
	}
	return count
}

// finds says whether `name` can lead to `ino`, and what is known then.
func (n names) finds(name string, ino int64) (bool, names) {
	now := n[place(name)]
	if now >= 0 || n.links(ino) > 0 {
		return now == ino, n
	}
	for at, other := range n {
		if other == now {
			n[at] = ino
		}
	}
	return true, n
}

func stepNames(state, in, out interface{}) (bool, interface{}) {
	s, i, o := state.(names), in.(*input), out.(*output)
	failed := !o.Unknown && o.Errno != 0
	switch i.Op {
	case "lookup":
		at := s[place(i.Name)]
		if failed {
			return o.Errno == noEntry && at == 0, s
		}
		ok, known := s.finds(i.Name, o.Ino)
		return ok && at != 0 && (o.Links == 0 || o.Links == known.links(o.Ino)), known
	case "create":
		at := place(i.Name)
		if failed || o.Unknown && s[at] != 0 {
			return (o.Unknown || o.Errno == exists) && s[at] != 0, s
		}
		if s[at] != 0 || o.Ino != 0 && s.links(o.Ino) > 0 {
			return false, s
		}
		s[at] = o.Ino
		if o.Unknown {
			s[at] = -i.ID
		}
		return true, s
	case "unlink":
		at := place(i.Name)
		if failed || o.Unknown && s[at] == 0 {
			return (o.Unknown || o.Errno == noEntry) && s[at] == 0, s
		}
		was := s[at]
		s[at] = 0
		return was != 0, s
	case "link":
		return stepLink(s, i, o, s[place(i.From)])
	case "linkinode":
		ino := i.Ino
		if s.links(ino) == 0 {
			ino = 0
		}
		return stepLink(s, i, o, ino)
	case "move":
		// an error of the target says nothing of what is to be moved
		if !o.Unknown && o.Errno == exists {
			return s[place(i.To)] != 0, s
		}
		if o.Errno == 0 && s[place(i.To)] != 0 {
			return o.Unknown, s
		}
		fallthrough
	case "rename":
		from, to := place(i.From), place(i.To)
		if failed || o.Unknown && s[from] == 0 {
			return (o.Unknown || o.Errno == noEntry) && s[from] == 0, s
		}
		if s[from] == 0 {
			return false, s
		}
		// two names of one inode stay
		if s[from] != s[to] {
			s[to], s[from] = s[from], 0
		}
		return true, s
	}
	return false, s
}

func stepLink(s names, i *input, o *output, ino int64) (bool, interface{}) {
	to := place(i.To)
	may := ino != 0 && s[to] == 0
	if o.Unknown && !may {
		return true, s
	}
	switch o.Errno {
	case 0:
		s[to] = ino
		return may, s
	case noEntry, stale:
		return ino == 0, s
	case exists:
		return s[to] != 0, s
	}
	return false, s
}

// namesModel is that of the names of one directory.
func namesModel(first map[string]int64) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} {
			var state names
			for name, ino := range first {
				state[place(name)] = ino
			}
			return state
		},
		Step:              stepNames,
		DescribeOperation: describe,
		DescribeState:     func(state interface{}) string { return fmt.Sprint(state) },
	}
}
