// Package node has queue libraries for Node.js, so that Siding can be compared with them. Their
// programs lie beside it.
package node

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed package.json package-lock.json *.mjs
var files embed.FS

// installTimeout is long enough for a slow line; without any, npm gives up at once.
const installTimeout = 2 * time.Minute

// Install returns a folder that has the programs and the packages that they need. The folder is in
// the user's cache, and npm fills it the first time.
func Install(ctx context.Context) (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", err
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "siding-bench")
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return "", err
	}
	folder := filepath.Join(cache, digest())
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	return folder, install(ctx, cache, folder)
}

// install makes the folder, whole or not at all.
func install(ctx context.Context, cache, folder string) error {
	temporary, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if err := os.CopyFS(temporary, files); err != nil {
		return err
	}
	// Not npm ci, which wants the lock file to name the packages of all platforms.
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
	npm.Dir = temporary
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w: %s", err, firstError(out))
	}
	err = os.Rename(temporary, folder)
	if _, there := os.Stat(folder); there == nil {
		return nil // another program may have been first
	}
	return err
}

// digest names what the programs and the versions of their packages are.
func digest() string {
	hash := sha256.New()
	entries, _ := files.ReadDir(".") // of this program itself, which cannot fail
	for _, e := range entries {
		content, _ := files.ReadFile(e.Name())
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", e.Name(), len(content), content)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// firstError returns the first line that npm has written of an error, which says most.
func firstError(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, "npm error "); ok {
			return strings.TrimSpace(text)
		}
	}
	return "it gives no reason"
}

// Versions returns those of the packages that are asked for, such as "bullmq": "6.7.0".
func Versions() map[string]string {
	var known struct{ Dependencies map[string]string }
	text, _ := files.ReadFile("package.json")
	if err := json.Unmarshal(text, &known); err != nil {
		panic(err) // npm cannot read it either
	}
	return known.Dependencies
}
