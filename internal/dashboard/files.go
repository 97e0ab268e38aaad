package dashboard

import (
	"embed"
	"fmt"
	"html"

	"github.com/sidingq/siding/internal/webfiles"
)

// filesPath is the path of the folders of files that the pages load.
const filesPath = "/files/"

//go:embed files
var ownFiles embed.FS

// files are what the pages load from this server.
type files struct {
	font, own *webfiles.Files
	fontURL   string // of the style sheet with the typeface
	scriptURL string // of the script that adds links to asynqmon's pages
}

func newFiles() (f files, err error) {
	if f.font, err = webfiles.Font(filesPath + "font"); err != nil {
		return f, err
	}
	if f.own, err = webfiles.New(ownFiles, "files", filesPath+"dashboard"); err != nil {
		return f, err
	}
	if f.fontURL, err = f.font.URL(webfiles.FontSheet); err != nil {
		return f, err
	}
	f.scriptURL, err = f.own.URL("asynqmon.js")
	return f, err
}

// head returns what asynqmon's front page loads besides its own files.
func (f files) head() string {
	return fmt.Sprintf(`<link rel="stylesheet" href="%s"/><script defer src="%s"></script>`, html.EscapeString(f.fontURL), html.EscapeString(f.scriptURL))
}
