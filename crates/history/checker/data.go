package main

import (
	"encoding/binary"
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Two files: of each, the number of the call that wrote each cell, four bytes a cell. Strings, as
// states are compared and never changed.
type files [2]string

const cellBytes = 4

func cellsOf(file string) int { return len(file) / cellBytes }

// written is a file when `value` was written there; it grows with zeros.
func written(file string, at, cells int, value int64) string {
	bytes := resized(file, max(cellsOf(file), at+cells))
	for cell := at; cell < at+cells; cell++ {
		binary.LittleEndian.PutUint32(bytes[cell*cellBytes:], uint32(value))
	}
	return string(bytes)
}

// resized is a copy of so many cells.
func resized(file string, cells int) []byte {
	bytes := make([]byte, cells*cellBytes)
	copy(bytes, file)
	return bytes
}

// shows says whether a file holds what was read from `at` on; all of it, if no more cells were
// asked for than there are, or with zeros behind its end.
func shows(file string, at, cells int, runs [][2]int64, zerosBehind bool) bool {
	have := cellsOf(file)
	if !zerosBehind {
		cells = max(0, min(cells, have-at))
	}
	cell := at
	for _, run := range runs {
		for i := int64(0); i < run[1]; i++ {
			value := int64(0)
			if cell < have {
				value = int64(binary.LittleEndian.Uint32([]byte(file[cell*cellBytes:][:cellBytes])))
			}
			if value != run[0] {
				return false
			}
			cell++
		}
	}
	return cell == at+cells
}

func stepData(state, in, out interface{}) (bool, interface{}) {
	s, i, o := state.(files), in.(*input), out.(*output)
	if !o.Unknown && o.Errno != 0 {
		// none of these calls may fail
		return false, s
	}
	file := s[i.File]
	switch i.Op {
	case "write":
		s[i.File] = written(file, i.At, i.Cells, i.ID)
	case "read":
		return len(o.Runs) == 1 && shows(file, i.At, i.Cells, o.Runs[0], false), s
	case "append":
		s[i.File] = written(file, cellsOf(file), i.Cells, i.ID)
		return o.Size == nil || *o.Size == cellsOf(file), s
	case "truncate":
		s[i.File] = string(resized(file, i.Cells))
	case "punch":
		if cells := min(i.Cells, cellsOf(file)-i.At); cells > 0 {
			s[i.File] = written(file, i.At, cells, 0)
		}
	case "size":
		return o.Size != nil && *o.Size == cellsOf(file), s
	case "transact":
		return stepTransaction(s, i, o)
	default:
		return false, s
	}
	return true, s
}

func stepTransaction(s files, i *input, o *output) (bool, interface{}) {
	if !o.Unknown && len(o.Runs) != len(i.Reads) {
		return false, s
	}
	for n := range o.Runs {
		read := i.Reads[n]
		if !shows(s[read.File], read.At, read.Cells, o.Runs[n], true) {
			return false, s
		}
	}
	for _, write := range i.Writes {
		s[write.File] = written(s[write.File], write.At, write.Cells, i.ID)
	}
	return true, s
}

// dataModel is that of bytes and sizes. Where no call touches both files each is looked at alone.
func dataModel(transacts bool) porcupine.Model {
	model := porcupine.Model{
		Init:              func() interface{} { return files{} },
		Step:              stepData,
		DescribeOperation: describe,
		DescribeState: func(state interface{}) string {
			return fmt.Sprintf("%d and %d cells", cellsOf(state.(files)[0]), cellsOf(state.(files)[1]))
		},
	}
	if !transacts {
		model.Partition = byFile
	}
	return model
}

// byFile parts operations that touch one file each.
func byFile(all []porcupine.Operation) [][]porcupine.Operation {
	parts := make([][]porcupine.Operation, 2)
	for _, operation := range all {
		file := operation.Input.(*input).File
		parts[file] = append(parts[file], operation)
	}
	return parts
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
