package script

// scopes knows, while a syntax tree is rewritten, which names are local variables there, and which
// of these a function inside has captured.
type scopes struct {
	blocks   []block
	function int                // how many functions are open inside each other
	declared map[string][]place // the places of a name that are in scope, the innermost last
}

// block is a scope. The compiler closes captured variables for a block as a whole, so more need
// not be known of them.
type block struct {
	names    []string
	function int
	loop     bool
	captured bool
	closes   bool // of a loop: a break leaves blocks inside it that have captured variables
}

// place is where a name was declared.
type place struct{ block, function int }

func (s *scopes) open(loop bool) {
	s.blocks = append(s.blocks, block{function: s.function, loop: loop})
}

// close ends the innermost scope and returns what is known of it.
func (s *scopes) close() block {
	last := len(s.blocks) - 1
	b := s.blocks[last]
	s.blocks = s.blocks[:last]
	for _, name := range b.names {
		s.declared[name] = s.declared[name][:len(s.declared[name])-1]
	}
	return b
}

func (s *scopes) openFunction() {
	s.function++
	s.open(false)
}

func (s *scopes) closeFunction() {
	s.close()
	s.function--
}

func (s *scopes) declare(names ...string) {
	if s.declared == nil {
		s.declared = map[string][]place{}
	}
	last := len(s.blocks) - 1
	for _, name := range names {
		s.declared[name] = append(s.declared[name], place{last, s.function})
		s.blocks[last].names = append(s.blocks[last].names, name)
	}
}

// use notes that a name is used here.
func (s *scopes) use(name string) {
	if at, ok := s.find(name); ok && at.function != s.function {
		s.blocks[at.block].captured = true
	}
}

// isLocal reports whether a name is a local variable of the function that is open.
func (s *scopes) isLocal(name string) bool {
	at, ok := s.find(name)
	return ok && at.function == s.function
}

func (s *scopes) find(name string) (place, bool) {
	places := s.declared[name]
	if len(places) == 0 {
		return place{}, false
	}
	return places[len(places)-1], true
}

// breakLoop notes a break here. The compiler closes captured variables at a break only if the
// loop's own block has some.
func (s *scopes) breakLoop() {
	captured := false
	for i := len(s.blocks) - 1; i >= 0 && s.blocks[i].function == s.function; i-- {
		b := &s.blocks[i]
		if b.loop {
			b.closes = b.closes || captured
			return
		}
		captured = captured || b.captured
	}
}
