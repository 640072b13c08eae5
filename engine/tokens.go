package engine

// This file has the tokens in transactions. The keys simba:{m}:fence and simba:{m}:token show the
// tokens of mutex m. A script learns its token before the commit. So the transaction draws the
// token early and watches the mutex. If another tenure begins before the commit, the transaction
// conflicts. So no tenure has a smaller token than an earlier one.

// Token implements simba.Tx.
func (t *tx) Token(name string) uint64 {
	k := t.key(name)
	switch {
	case !k.lock.Exists() || k.pretended:
		return k.ended
	case k.hidden:
		return 0
	case k.lock.Token == pending:
		t.drawTokens(k)
	}
	return k.lock.Token
}

// DropToken implements simba.Tx.
func (t *tx) DropToken(name string) {
	k := t.key(name)
	k.ended, k.hidden = 0, k.lock.Exists()
}

// DroppedToken implements simba.Tx.
func (t *tx) DroppedToken() (name string, ok bool) {
	for _, k := range t.keys {
		if k.hidden && k.lock.Exists() && !k.pretended {
			return k.name, true
		}
	}
	return "", false
}

// Fence implements simba.Tx.
func (t *tx) Fence(name string) uint64 {
	k := t.key(name)
	if !k.lock.Exists() || k.pretended {
		k.given = max(k.given, t.engine.token.Load())
		return k.given
	}
	if k.lock.Token == pending {
		t.drawTokens(k)
	}
	return max(k.lock.Token, k.given)
}

// NextToken implements simba.Tx.
func (t *tx) NextToken(name string) uint64 {
	k := t.key(name)
	o := k.begun()
	known := o == nil || o.token != 0 // the caller may already know the token
	t.drawTokens(k)
	switch {
	case o == nil:
		k.next = k.draw()
		return k.next
	case known:
		o.token = k.draw()
		k.lock.Token = o.token
	}
	return o.token
}

// drawTokens watches the mutex, and gives tokens to the tenures that the transaction has begun.
func (t *tx) drawTokens(k *txKey) {
	if t.tooLarge {
		return
	}
	t.read(k, func(*mutex, *step) { k.watchVersion(false) })
	for i := range k.work {
		if o := &k.work[i]; o.token == 0 && (o.kind == opTake || o.kind == opChange) {
			o.token = k.draw()
		}
	}
	if o := k.begun(); o != nil {
		k.lock.Token = o.token
	}
}

// draw returns a new token. The transaction must watch the mutex.
func (k *txKey) draw() uint64 {
	k.given = k.shard.engine.token.Add(1)
	return k.given
}

// begun returns the opTake that begins the present tenure; nil = the tenure began before the
// transaction.
func (k *txKey) begun() *op {
	for i := len(k.work) - 1; i >= 0; i-- {
		switch o := &k.work[i]; o.kind {
		case opTake:
			return o
		case opDrop:
			return nil
		}
	}
	return nil
}
