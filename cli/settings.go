package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
)

// source is where a setting comes from. A smaller number overrides a larger one.
type source int

const (
	fromFlag source = iota
	fromEnvironment
	fromFile
	fromDefault
)

// setting is the value of a setting, and the words that name it in an error.
type setting struct {
	value string
	from  source
	where string // "--url", "SIMBA_URL" or "url in simba.toml"
}

func (s setting) given() bool { return s.from != fromDefault }

// The settings of a connection. Each is a flag, a variable and a key of the file.
const (
	urlFlag          = "url"
	userFlag         = "user"
	passwordFileFlag = "password-file"
	caFlag           = "cacert"
	certFlag         = "cert"
	keyFlag          = "key"

	configFlag = "config" // a flag only: the variable SIMBA_CONFIG names the server's file
)

// passwordVariable is the only variable without a flag: other users of a machine can read flags.
const passwordVariable = "SIMBA_PASSWORD"

// connectionFlag is a setting with its flag. key is its name in the file; Variable returns its
// environment variable.
type connectionFlag struct{ name, key, help string }

var connectionFlags = []connectionFlag{
	{urlFlag, urlFlag, "`URL` of the server: redis://host:port, rediss:// for TLS, or unix:///path; several hosts as host:port,host:port (default " + defaultURL + ")"},
	{userFlag, userFlag, "`NAME` of the user, if the URL has none"},
	{passwordFileFlag, passwordFileFlag, "`FILE` that has the password; or set " + passwordVariable},
	{caFlag, caFlag, "PEM `FILE` of the authorities that sign the server's certificate (default those of the system)"},
	{certFlag, certFlag, "PEM `FILE` of the client certificate, with --key"},
	{keyFlag, keyFlag, "PEM `FILE` of the private key of --cert"},
}

// AddConnection adds the flags of the connection.
func AddConnection(cmd *cobra.Command) { addFlags(cmd, connectionFlags) }

func addFlags(cmd *cobra.Command, flags []connectionFlag) {
	for _, f := range flags {
		cmd.Flags().String(f.name, "", f.help)
	}
	cmd.Flags().String(configFlag, "", "TOML `FILE` of connection settings")
	// These calls fail only if there is no such flag.
	_ = cmd.MarkFlagFilename(configFlag, "toml")
	_ = cmd.RegisterFlagCompletionFunc(urlFlag, cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc(userFlag, cobra.NoFileCompletions)
}

// Variable returns the environment variable of a setting, also of one of the server.
func Variable(key string) string {
	return "SIMBA_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// readSettings returns each setting from the first source that has it: the flag, the environment
// variable, the file of --config.
func readSettings(cmd *cobra.Command, flags []connectionFlag) (map[string]setting, error) {
	file, err := cmd.Flags().GetString(configFlag)
	if err != nil {
		return nil, err
	}
	inFile, wrong := ReadFile(file, func(key string) bool {
		return slices.ContainsFunc(slices.Concat(connectionFlags, httpFlags), func(f connectionFlag) bool { return f.key == key })
	})
	if len(wrong) > 0 {
		return nil, Usagef("%w", wrong[0])
	}
	settings := make(map[string]setting)
	for _, f := range flags {
		s := setting{from: fromDefault}
		if v, ok := inFile[f.key]; ok {
			s = setting{v, fromFile, f.key + " in " + Printable(file)}
		}
		if v := os.Getenv(Variable(f.key)); v != "" {
			s = setting{v, fromEnvironment, Variable(f.key)}
		}
		if flag := cmd.Flags().Lookup(f.name); flag != nil && flag.Changed {
			s = setting{flag.Value.String(), fromFlag, "--" + f.name}
		}
		settings[f.name] = s
	}
	return settings, nil
}

// Trim removes a leading byte order mark and trailing line ends, which editors and echo add.
func Trim(text string) string {
	return strings.TrimRight(strings.TrimPrefix(text, "\ufeff"), "\r\n")
}

// ReadPassword returns the content of a file, as Trim returns it. It refuses an empty one.
func ReadPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fileError(err)
	}
	password := Trim(string(text))
	if password == "" {
		return "", fmt.Errorf("%s is empty", Printable(path))
	}
	return password, nil
}

// ReadFile returns the values in a TOML file by key, as a user would write them for flags, and all
// errors. It does not repeat values, because a URL can have a password.
func ReadFile(path string, known func(key string) bool) (map[string]string, []error) {
	if path == "" {
		return nil, nil
	}
	where := "--" + configFlag + ": " + Printable(path)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("--%s: %w", configFlag, fileError(err))}
	}
	var keys map[string]any
	if err := toml.Unmarshal(text, &keys); err != nil {
		line := ""
		if parse := (toml.ParseError{}); errors.As(err, &parse) {
			line = fmt.Sprintf(" in line %d", parse.Position.Line)
		}
		return nil, []error{fmt.Errorf("%s is not valid TOML%s; strings need quotes", where, line)}
	}
	var wrong []error
	values := make(map[string]string, len(keys))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !known(key) {
			wrong = append(wrong, fmt.Errorf("%s: unknown key '%s'", where, Printable(key)))
			continue
		}
		switch value := keys[key].(type) {
		case string, int64, bool:
			values[key] = fmt.Sprint(value)
		default:
			wrong = append(wrong, fmt.Errorf("%s: '%s' must be a string, an integer, true or false", where, Printable(key)))
		}
	}
	return values, wrong
}
