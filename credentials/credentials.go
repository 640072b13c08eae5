// Package credentials reads certificates, keys and passwords of a client from files. A file may be
// replaced while the program runs: a [Source] reads it again for each new connection.
package credentials

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Source is a value that is made of a text and of files that the text names. It is safe for
// concurrent use.
type Source[T any] struct {
	Config[T]

	mu      sync.Mutex // protects this group
	current T
	err     string // of the last read; "" = none
}

// Config is the configuration of a Source.
type Config[T any] struct {
	Text   string
	Reread func() (string, error)  // returns the present text; nil = Text does not change
	Parse  func(string) (T, error) // reads the files
	Failed func(error)             // gets the error of a later read, once if it repeats
	// Once returns files of a value that may be pipes, which cannot be read again. If one is, the
	// value stays. nil = no such files.
	Once func(T) []string
}

// Open reads the first value.
func Open[T any](c Config[T]) (*Source[T], error) {
	first, err := c.Parse(c.Text)
	return &Source[T]{Config: c, current: first}, err
}

// Get reads the value. If that fails, it returns the last value that could be read.
func (s *Source[T]) Get() T {
	if last := s.Last(); s.Once != nil && slices.ContainsFunc(s.Once(last), isPipe) {
		return last
	}
	text, err := s.Text, error(nil)
	if s.Reread != nil {
		text, err = s.Reread()
	}
	var next T
	if err == nil {
		next, err = s.Parse(text)
	}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	s.mu.Lock()
	if err == nil {
		s.current = next
	}
	current, isNew := s.current, failure != s.err
	s.err = failure
	s.mu.Unlock()
	if err != nil && isNew {
		s.Failed(err)
	}
	return current
}

// Last returns the last value that could be read.
func (s *Source[T]) Last() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func isPipe(file string) bool {
	info, err := os.Stat(file)
	return err == nil && !info.Mode().IsRegular()
}

// File is a PEM file and the setting that names it. Path "" = not given.
type File struct {
	Setting, Path string
	// Regular refuses other files, for example a device whose read never ends.
	Regular bool
}

func (f File) read() ([]byte, error) {
	if f.Regular && isPipe(f.Path) {
		return nil, fmt.Errorf("%s is not a regular file", f.Path)
	}
	return os.ReadFile(f.Path)
}

// Errors has all errors of the files of TLS. Each begins with the setting of the file.
type Errors []error

// Error implements error. The text has one line.
func (e Errors) Error() string { return strings.ReplaceAll(errors.Join(e...).Error(), "\n", "; ") }

// TLS returns the TLS configuration of a client, and by setting when its certificates expire. Its
// error is of type Errors.
func TLS(ca, cert, key File, serverName string) (*tls.Config, map[string]time.Time, error) {
	c, expires := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}, make(map[string]time.Time)
	var wrong Errors
	add := func(f File, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", f.Setting, err))
		}
	}
	if ca.Path != "" {
		text, err := ca.read()
		if err == nil {
			c.RootCAs, expires[ca.Setting], err = Authorities(text, ca.Path)
		}
		add(ca, err)
	}
	switch {
	case (cert.Path == "") != (key.Path == ""):
		wrong = append(wrong, fmt.Errorf("%s and %s are needed together", cert.Setting, key.Setting))
	case cert.Path != "":
		certPEM, err := cert.read()
		add(cert, err)
		keyPEM, err := key.read()
		add(key, err)
		if len(wrong) > 0 {
			break
		}
		pair, err := Pair(certPEM, keyPEM)
		if err != nil {
			add(cert, fmt.Errorf("%s with the key %s: %w", cert.Path, key.Path, err))
			break
		}
		c.Certificates, expires[cert.Setting] = []tls.Certificate{pair}, Expires(pair)
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return c, expires, nil
}

// byteOrderMark would hide the first PEM block.
var byteOrderMark = []byte("\ufeff")

// Pair returns a certificate with its key.
func Pair(cert, key []byte) (tls.Certificate, error) {
	return tls.X509KeyPair(bytes.TrimPrefix(cert, byteOrderMark), bytes.TrimPrefix(key, byteOrderMark))
}

// Expires returns the earliest end of a certificate in the chain.
func Expires(pair tls.Certificate) time.Time {
	expires := pair.Leaf.NotAfter
	for _, der := range pair.Certificate[1:] {
		if above, err := x509.ParseCertificate(der); err == nil && above.NotAfter.Before(expires) {
			expires = above.NotAfter
		}
	}
	return expires
}

// Authorities returns the authorities in the text of a file, and when the last of them expires. A
// file may have an old authority and its successor.
func Authorities(text []byte, file string) (pool *x509.CertPool, expires time.Time, err error) {
	pool = x509.NewCertPool()
	for block, rest := pem.Decode(bytes.TrimPrefix(text, byteOrderMark)); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			pool.AddCert(c)
			if c.NotAfter.After(expires) {
				expires = c.NotAfter
			}
		}
	}
	if expires.IsZero() {
		return nil, expires, fmt.Errorf("%s has no PEM certificate", file)
	}
	return pool, expires, nil
}
