// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

var block = regexp.MustCompile("(?s)```go\n(.*?)```")

// Programs of the guide and the README run as they are.
func TestTheProgramsOfThePages(t *testing.T) {
	root := got[string](t)(filepath.Abs(".."))
	pages := got[[]string](t)(filepath.Glob(filepath.Join(root, "docs/guide/src/*.md")))
	pages = append(pages, filepath.Join(root, "README.md"))
	here := t.TempDir()
	module := fmt.Sprintf("module pages\n\ngo 1.24\n\nrequire example.invalid/ringdb/go v0.0.0\n\n"+
		"replace example.invalid/ringdb/go => %s/go\n", root)
	must(t, os.WriteFile(filepath.Join(here, "go.mod"), []byte(module), 0o666))
	programs := []string{}
	for _, page := range pages {
		for i, found := range block.FindAllSubmatch(got[[]byte](t)(os.ReadFile(page)), -1) {
			name := fmt.Sprintf("%s-%d", filepath.Base(page), i)
			dir := filepath.Join(here, name)
			must(t, os.Mkdir(dir, 0o777))
			must(t, os.WriteFile(filepath.Join(dir, "main.go"), found[1], 0o666))
			programs = append(programs, name)
		}
	}
	if len(programs) < 5 {
		t.Fatal("the pages have programs:", programs)
	}
	run := func(dir, program string, args ...string) {
		t.Helper()
		command := exec.Command(program, args...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v\n%s", program, args, err, out)
		}
	}
	bin := filepath.Join(here, "bin")
	run(here, "go", "vet", "./...")
	run(here, "go", "build", "-o", bin+"/", "./...")
	for _, name := range programs {
		t.Run(name, func(t *testing.T) { run(t.TempDir(), filepath.Join(bin, name)) })
	}
}
