package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/tests/pages"
)

// The page of the command line is written by hand, except for the section between these lines.
const (
	cliPage  = "../../docs/reference/cli.md"
	cliBegin = "<!-- make docs writes this section from the commands. Do not edit it. -->\n"
	cliEnd   = "\n<!-- end of the section -->\n"
)

// object is an object that a command prints with --json. The tag doc of a field says what the field
// means.
type object struct {
	command string // one or several commands, in Markdown
	value   any
}

// objects are all objects, in the order of the page.
var objects = []object{
	{"`owner`, `list`", cli.Tenure{}},
	{"`list`, if the owner is not known", cli.Hidden{}},
	{"`queue`", cli.Waiter{}},
	{"`history`, `watch`", cli.Event{}},
	{"`why`", cli.Why{}},
	{"`break`", cli.Broken{}},
	{"`status`", cli.Status{}},
}

// cliMarkdown is the section of the commands and of their JSON. It leaves out serve and check,
// whose settings have a page of their own.
func cliMarkdown() string {
	var b strings.Builder
	for _, cmd := range newRoot(nil, os.Getenv, func(context.Context, *config) error { return nil }).Commands() {
		if !slices.Contains([]string{"serve", "check"}, cmd.Name()) {
			writeCommand(&b, cmd)
		}
		for _, sub := range cmd.Commands() {
			writeCommand(&b, sub)
		}
	}
	b.WriteString("\n## JSON objects\n")
	for _, o := range objects {
		writeObject(&b, o)
	}
	return b.String()
}

func writeObject(b *strings.Builder, o object) {
	fmt.Fprintf(b, "\n%s:\n\n| field | type | meaning |\n| --- | --- | --- |\n", o.command)
	for _, f := range fieldsOf(o) {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Tag.Get("json"), jsonType(f.Type), f.Tag.Get("doc"))
	}
}

// fieldsOf returns the fields that the JSON has.
func fieldsOf(o object) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(reflect.TypeOf(o.value)), func(f reflect.StructField) bool { return !f.IsExported() })
}

// jsonType names the type of a field in JSON.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem()) + " or null"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	}
	return "number"
}

// Package cli has the rule for names: for example, a duration ends in _ms, not in _usec.
func TestEveryFieldOfJSONIsDocumented(t *testing.T) {
	for _, o := range objects {
		for _, f := range fieldsOf(o) {
			name := f.Tag.Get("json")
			if f.Tag.Get("doc") == "" {
				t.Errorf("%s: the field %s has no tag doc", o.command, name)
			}
			for _, unit := range []string{"_seconds", "_usec", "memory", "ttl", "transition"} {
				if strings.HasSuffix(name, unit) {
					t.Errorf("%s: the name %s breaks the rule of package cli", o.command, name)
				}
			}
		}
	}
}

// writeCommand writes a command and its flags. The flags of the connection have a table of their
// own.
func writeCommand(b *strings.Builder, cmd *cobra.Command) {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n### %s\n\n```sh\n%s\n```\n", strings.TrimPrefix(cmd.CommandPath(), "simba-resp "), cmd.UseLine())
	for paragraph := range strings.SplitSeq(long, "\n\n") {
		if flag, meaning, ok := strings.Cut(paragraph, "\n"); ok && strings.HasPrefix(flag, "--") {
			paragraph = "`" + flag + "`: " + strings.TrimSpace(meaning)
		}
		b.WriteString("\n" + pages.Fold(escapeMarkdown(paragraph), ""))
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
	head := "\n| flag | meaning |\n| --- | --- |\n"
	shared := connectionFlags()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if s := shared.Lookup(f.Name); f.Name == "help" || s != nil && s.Usage == f.Usage {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "%s| `%s` | %s |\n", head, strings.TrimSpace("--"+f.Name+" "+kind), escapeMarkdown(usage))
		head = ""
	})
}

func connectionFlags() *pflag.FlagSet {
	cmd := new(cobra.Command)
	cli.AddConnection(cmd)
	return cmd.Flags()
}

// escapeMarkdown writes a text of --help as Markdown.
func escapeMarkdown(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`, `]`, `\]`, `|`, `\|`).Replace(text)
}

func TestPageOfCommandLineIsCurrent(t *testing.T) {
	text, err := os.ReadFile(cliPage)
	must(t, err)
	before, _, _ := strings.Cut(string(text), cliBegin)
	connectionFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(before, "| `--"+f.Name+" ") {
			t.Errorf("docs/reference/cli.md has no row for --%s of the connection", f.Name)
		}
	})
	pages.Current(t, cliPage, cliBegin, cliEnd, cliMarkdown())
}
