package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile is far above what a file of settings needs; it keeps a wrong path
// (a database, a device) from filling the memory.
const maxFile = 1 << 20

// file reads the settings in the file at path.
func (l *loader) file(path string) {
	text, err := read(path)
	if err != nil {
		l.fail("%w", err)
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return // empty: all defaults
	} else if err != nil {
		l.fail("%s", placed(path, err))
		return
	}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil {
		l.fail("%s:%d: want one document, have a second one", path, next.Line)
	} else if !errors.Is(err, io.EOF) {
		l.fail("%s", placed(path, err))
	}
	f := &file{loader: l, path: path, lines: make(map[string]int)}
	if root := resolve(doc.Content[0]); root.Kind == yaml.MappingNode {
		f.mapping(root, "")
	} else if root.ShortTag() != null {
		l.fail("%s:%d: want settings as \"key: value\", have %s", path, root.Line, kind(root))
	}
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("config: %s: want at most %d bytes", path, maxFile)
	}
	return text, nil
}

// null is the tag of a key that has nothing after its colon.
const null = "!!null"

// yamlLine finds the place in an error of the YAML library.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// placed rewrites an error of the YAML library to begin with the place, as
// all our errors do.
func placed(path string, err error) string {
	text := err.Error()
	found := yamlLine.FindStringSubmatch(text)
	if found == nil {
		return path + ": " + text
	}
	rest := strings.TrimPrefix(text, found[0])
	if found[1] == "" {
		return path + ": not YAML: " + rest
	}
	return path + ":" + found[1] + ": not YAML: " + rest
}

// A file is being walked.
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
		place := fmt.Sprintf("%s:%d: %s", f.path, name.Line, key)
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
		f.items(s, value)
	case s.Kind == Numbers && value.Kind == yaml.MappingNode:
		f.pairs(s, value)
	default:
		f.fail("%s: want %s, have %s", place, s.Want, kind(value))
	}
	// A list without items is no value.
	if len(value.Content) == 0 && value.Kind != yaml.ScalarNode && !s.mayBeEmpty() {
		f.fail("%s: want %s, have nothing", place, s.Want)
	}
}

func (f *file) items(s Setting, value *yaml.Node) {
	for _, item := range value.Content {
		item = resolve(item)
		place := fmt.Sprintf("%s:%d: %s", f.path, item.Line, s.Key)
		if item.Kind != yaml.ScalarNode {
			f.fail("%s: want %s, have %s", place, s.Want, kind(item))
			continue
		}
		f.put(s, place, item.Value)
	}
}

func (f *file) pairs(s Setting, value *yaml.Node) {
	for i := 0; i+1 < len(value.Content); i += 2 {
		name, number := value.Content[i], resolve(value.Content[i+1])
		place := fmt.Sprintf("%s:%d: %s", f.path, name.Line, s.Key)
		if name.Kind != yaml.ScalarNode || number.Kind != yaml.ScalarNode {
			f.fail("%s: want %s, have %s", place, s.Want, kind(number))
			continue
		}
		f.put(s, place, name.Value+"="+number.Value)
	}
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
