package lockpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

// filesPath is the path of the folder of files.
const filesPath = RootPath + "/files/"

//go:embed files
var folder embed.FS

// types has the content type of each file that is served. Other files, such as licences, are not.
var types = map[string]string{
	".css":   "text/css; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".woff2": "font/woff2",
}

// files are what pages load, by name: scripts, style sheets, and the typeface Roboto.
var files = readFiles()

type file struct {
	text []byte
	hash string
}

func readFiles() map[string]file {
	all := make(map[string]file)
	entries, _ := folder.ReadDir("files") // which is a part of the program
	for _, entry := range entries {
		text, _ := folder.ReadFile("files/" + entry.Name())
		sum := sha256.Sum256(text)
		all[entry.Name()] = file{text, hex.EncodeToString(sum[:8])}
	}
	return all
}

// FileURL returns the address of a file on this server. A changed file has another address.
func FileURL(name string) string { return filesPath + name + "?v=" + files[name].hash }

// serveFile serves a file. A browser keeps the file for a year if the address is one of [FileURL].
// Otherwise the browser asks each time whether its copy is still good.
func serveFile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, filesPath)
	one, kind := files[name], types[path.Ext(name)]
	if one.text == nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	keep := "private, no-cache"
	if r.URL.Query().Has("v") {
		keep = "private, max-age=31536000, immutable"
	}
	h := w.Header()
	h.Set("Cache-Control", keep)
	h.Set("Content-Type", kind)
	h.Set("ETag", `"`+one.hash+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(one.text))
}
