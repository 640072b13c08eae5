package main

import (
	"bytes"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
	markdown "github.com/yuin/goldmark/text"
)

// checkMarkdown checks the prose of a Markdown file and the length of its lines.
func checkMarkdown(_ string, source []byte) (found []finding, err error) {
	root := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(markdown.NewReader(source))
	p := page{source: source, free: map[int]bool{}}
	err = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindParagraph, ast.KindTextBlock:
			found = append(found, checkText(p.text(n))...)
			return ast.WalkSkipChildren, nil
		case ast.KindHeading:
			found = append(found, checkPhrase("heading", p.text(n))...)
			return ast.WalkSkipChildren, nil
		case table.KindTableCell:
			t := p.text(n)
			for _, w := range t.words {
				p.free[w.line] = true
			}
			found = append(found, checkPhrase("cell", t)...)
			return ast.WalkSkipChildren, nil
		case ast.KindCodeBlock, ast.KindFencedCodeBlock:
			for i := range n.Lines().Len() {
				p.free[p.line(n.Lines().At(i).Start)] = true
			}
		}
		return ast.WalkContinue, nil
	})
	for i, line := range strings.Split(string(source), "\n") {
		if !p.free[i+1] {
			found = append(found, checkLine(line, i+1)...)
		}
	}
	return found, err
}

type page struct {
	source []byte
	free   map[int]bool // lines of code blocks and tables, which may be long
}

func (p *page) line(offset int) int {
	return 1 + bytes.Count(p.source[:offset], []byte("\n"))
}

// text returns the prose of a block, with the texts of links but without their URLs.
func (p *page) text(block ast.Node) *text {
	t := &text{}
	at := 0
	if block.Type() == ast.TypeBlock && block.Lines().Len() > 0 {
		at = p.line(block.Lines().At(0).Start)
	}
	// The function returns no error, so Walk returns none.
	_ = ast.Walk(block, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			at = p.line(n.Segment.Start)
			t.add(string(n.Segment.Value(p.source)), at)
			if n.SoftLineBreak() || n.HardLineBreak() {
				t.space()
			}
		case *ast.CodeSpan:
			var code []byte
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				if s, ok := c.(*ast.Text); ok {
					code = append(code, s.Segment.Value(p.source)...)
					at = p.line(s.Segment.Start)
				}
			}
			t.addCode(string(code), at)
			return ast.WalkSkipChildren, nil
		case *ast.AutoLink:
			t.addCode(string(n.URL(p.source)), at)
		}
		return ast.WalkContinue, nil
	})
	return t
}
