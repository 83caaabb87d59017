package orbit

import "encoding/json"

// lease is the newest proof of a piece of work, of a delivery or of an attempt.
type lease struct {
	id     string
	epoch  Counter
	secret Secret
}

// members writes {"<idName>":…,"epoch":…,"lease_secret":… and leaves the object open.
func (l lease) members(idName string) object {
	var o object
	o.put(idName, l.id)
	o.put("epoch", l.epoch)
	o.put("lease_secret", string(l.secret))
	return o
}

// body writes the members as a whole object.
func (l lease) body(idName string) []byte {
	o := l.members(idName)
	return o.done()
}

// list writes {"<name>":[{…},…]} of the leases' members.
func list(name, idName string, leases []lease) []byte {
	items := make([]json.RawMessage, len(leases))
	for i, l := range leases {
		items[i] = l.body(idName)
	}
	var o object
	o.put(name, items)
	return o.done()
}
