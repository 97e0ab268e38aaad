package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile is far above what a file of settings needs, or one that they name; it keeps a wrong path
// (a database, a device) from filling the memory.
const maxFile = 1 << 20

// file reads the settings in the file at path, which comes from the place.
func (l *loader) file(place, path string) {
	text, err := read(path)
	if err != nil {
		l.fail("%s: %w", place, err)
		return
	}
	doc, next, err := document(text)
	switch {
	case err != nil:
		l.fail("%s: %w", path, err)
		return
	case len(doc.Content) == 0:
		return // empty: all defaults
	case next.Line > 0:
		l.fail("%s:%d: want one document, have a second one", path, next.Line)
	}
	f := &file{loader: l, path: path, lines: make(map[string]int)}
	if root := resolve(doc.Content[0]); root.Kind == yaml.MappingNode {
		f.mapping(root, "")
	} else if root.ShortTag() != null {
		l.fail("%s:%d: want settings as \"key: value\", have %s", path, root.Line, kind(root))
	}
}

// document returns the document of a text, without content if the text has none, and the second one, in line 0 if there is none.
func document(text []byte) (doc, next yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err = decoder.Decode(&doc); err == nil {
		err = decoder.Decode(&next)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return doc, next, err
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(text) > maxFile {
		err = fmt.Errorf("%s: want at most %d bytes", path, maxFile)
	}
	return text, err
}

// null is the tag of a key that has nothing after its colon.
const null = "!!null"

// A file is a walk through a file of settings.
type file struct {
	*loader
	path  string
	lines map[string]int // of the keys seen
}

// mapping walks the keys of a section; prefix is empty or ends in a dot.
func (f *file) mapping(node *yaml.Node, prefix string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], resolve(node.Content[i+1])
		key := prefix + name.Value
		place := fmt.Sprintf("%s:%d: %s", f.path, name.Line, Setting{}.show(key))
		if name.Kind != yaml.ScalarNode {
			f.fail("%s:%d: want a key, have %s", f.path, name.Line, kind(name))
			continue
		}
		if first, ok := f.lines[key]; ok {
			f.fail("%s: is there twice, first in line %d", place, first)
			continue
		}
		f.lines[key] = name.Line
		f.key(key, place, value)
	}
}

// key handles one key, which names a setting or a section.
func (f *file) key(key, place string, value *yaml.Node) {
	section := false
	var known []string
	for _, s := range f.settings {
		if s.Key == key {
			f.setting(s, place, value)
			return
		}
		section = section || strings.HasPrefix(s.Key, key+".")
		known = append(known, s.Key)
	}
	switch {
	case !section:
		f.fail("%s: no such setting%s", place, unknown(key, known))
	case value.Kind == yaml.MappingNode:
		f.mapping(value, key+".")
	case value.ShortTag() != null: // a section may be empty
		f.fail("%s: want settings below it, have %s", place, kind(value))
	}
}

// setting takes the value of a setting.
func (f *file) setting(s Setting, place string, value *yaml.Node) {
	if s.private != nil && (s.Flag == "" || s.private(value.Value)) {
		f.fail("%s: want no password in this file: set %s in the environment", place, s.Env)
		return
	}
	f.start(s, place)
	switch {
	case value.Kind == yaml.ScalarNode && value.ShortTag() == null:
		f.fail("%s: want %s, have nothing", place, s.Want)
	case value.Kind == yaml.ScalarNode:
		f.putAll(s, place, value.Value)
	case s.Kind == List && value.Kind == yaml.SequenceNode:
		f.items(s, value, 1)
	case s.Kind == Numbers && value.Kind == yaml.MappingNode:
		f.items(s, value, 2)
	case s.entry != nil && value.Kind == yaml.MappingNode:
		f.entries(s, value, func(line int) string { return fmt.Sprintf("%s:%d: %s", f.path, line, s.Key) })
	default:
		f.fail("%s: want %s, have %s", place, s.Want, kind(value))
	}
	if len(value.Content) == 0 && value.Kind != yaml.ScalarNode && !s.mayBeEmpty() {
		f.fail("%s: want %s, have nothing", place, s.Want)
	}
}

// items takes the items of a list or of a mapping. An item of a list is one node, and an item of a
// mapping a name and a number.
func (f *file) items(s Setting, list *yaml.Node, size int) {
	for item := range slices.Chunk(list.Content, size) {
		name, value := item[0], resolve(item[size-1])
		place := fmt.Sprintf("%s:%d: %s", f.path, name.Line, s.Key)
		switch {
		case value.Kind != yaml.ScalarNode, size == 2 && name.Kind != yaml.ScalarNode:
			f.fail("%s: want %s, have %s", place, s.Want, kind(value))
		case size == 2:
			f.put(s, place, name.Value+"="+value.Value)
		default:
			f.put(s, place, value.Value)
		}
	}
}

// entriesIn takes the entries in a text that came from the place. It is written as in a file.
func (l *loader) entriesIn(s Setting, place, text string) {
	doc, next, err := document([]byte(text))
	if err != nil || next.Line > 0 || len(doc.Content) > 0 && doc.Content[0].Kind != yaml.MappingNode {
		l.fail("%s: want %s, in a mapping such as {NAME: {...}}, have %s", place, s.Want, s.show(text))
	} else if len(doc.Content) > 0 {
		l.entries(s, doc.Content[0], func(int) string { return place })
	}
}

// entries takes a mapping of names to mappings, whose lines are at the places.
func (l *loader) entries(s Setting, list *yaml.Node, place func(line int) string) {
	for pair := range slices.Chunk(list.Content, 2) {
		name, value := pair[0], resolve(pair[1])
		what, _, _ := strings.Cut(s.Want, " with")
		var line int
		var err error
		switch {
		case name.Kind != yaml.ScalarNode:
			err = fmt.Errorf("want %s, have %s", what, kind(name))
		case value.Kind != yaml.MappingNode || len(value.Content) == 0:
			err = fmt.Errorf("%q: want %s below it, have %s", name.Value, s.below, amount(value))
		default:
			var fields []field
			if fields, line, err = fieldsOf(value, s.list); err != nil {
				err = fmt.Errorf("%.80q: %w", name.Value, err)
			} else {
				line, err = s.entry(name.Value, fields)
			}
		}
		if err != nil {
			l.fail("%s: %w", place(cmp.Or(line, name.Line)), err)
		}
	}
}

// fieldsOf returns the fields of an entry, of which one may be a list. An error is about a line.
func fieldsOf(entry *yaml.Node, list string) (fields []field, line int, _ error) {
	seen := make(map[string]bool)
	for pair := range slices.Chunk(entry.Content, 2) {
		name, value := pair[0], resolve(pair[1])
		if seen[name.Value] {
			return nil, name.Line, fmt.Errorf("%.80s: is there twice", name.Value)
		}
		seen[name.Value] = true
		items := []*yaml.Node{value}
		if name.Value == list && value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
			items = value.Content
		}
		for _, item := range items {
			line, item = max(name.Line, item.Line), resolve(item)
			text := item.Value
			if item.Kind != yaml.ScalarNode {
				text = amount(item) // which no field takes
			}
			fields = append(fields, field{name.Value, text, line})
		}
	}
	return fields, 0, nil
}

// amount names what a node is, and whether it is empty.
func amount(node *yaml.Node) string {
	if node.Kind != yaml.ScalarNode && len(node.Content) == 0 {
		return kind(node) + " without any"
	}
	return kind(node)
}

// resolve follows an alias to what it stands for.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// kind names what a node is.
func kind(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		if !isPlain(node.Value) {
			return hidden // it may be the URL or the password of a server
		}
		return fmt.Sprintf("%q", node.Value)
	}
}
