package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/cluster"
	"github.com/simba-resp/simba-resp/credentials"
)

// The limits of the times of a cluster.
const (
	minHeartbeat = 10 * time.Millisecond
	maxElection  = time.Minute
	// heartbeats is how many heartbeats must fit into the time of an election, so that a few lost
	// packets end no term.
	heartbeats = 5
)

var memberName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// peers returns the members in a list, as far as they are well formed, and the errors of the list.
func peers(list string) (all []cluster.Peer, wrong configErrors) {
	taken := make(map[string]bool) // names and addresses
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for member := range strings.SplitSeq(list, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(member), "=")
		host, port, _ := net.SplitHostPort(addr)
		switch _, err := isPublic(addr); {
		case !ok:
			refuse("'%s' is not name=host:port", member)
		case !memberName.MatchString(name):
			refuse("'%s' is not a name: it may have 1 to 64 letters, digits, dots, underscores and hyphens", name)
		case err != nil:
			refuse("member %s: %w", name, err)
		case host == "" || strings.Trim(port, "0") == "" || net.ParseIP(host).IsUnspecified():
			refuse("member %s: no other host can connect to '%s'", name, addr)
		case taken[name]:
			refuse("the name %s is there twice", name)
		case taken[addr]:
			refuse("the address %s is there twice", addr)
		default:
			taken[name], taken[addr] = true, true
			all = append(all, cluster.Peer{Name: name, Addr: addr})
		}
	}
	return all, wrong
}

// self returns this server as a member, nil if Cluster does not name it.
func (c *config) self() *cluster.Peer {
	all, _ := peers(c.Cluster)
	return find(all, c.ClusterName)
}

// find returns the member of that name, nil if the list has none.
func find(list []cluster.Peer, name string) *cluster.Peer {
	for _, p := range list {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// membersAddr returns the address at which this server listens for the other members. The name of a
// host may not be known yet, or be that of an address which the machine does not have itself. So with
// a name the server listens at all addresses.
func (c *config) membersAddr() string {
	addr := c.self().Addr
	host, port, _ := net.SplitHostPort(addr)
	if public, _ := isPublic(addr); public && net.ParseIP(host) == nil {
		return ":" + port
	}
	return addr
}

// checkCluster reports errors of the settings of a cluster, apart from the content of the files.
func (c *config) checkCluster(refuse func(name, format string, args ...any)) {
	if c.Cluster == "" {
		return
	}
	members, wrong := peers(c.Cluster)
	for _, err := range wrong {
		refuse("cluster", "%w", err)
	}
	switch {
	case c.ClusterName == "":
		refuse("cluster-name", "--cluster needs it: the name of this server in the list")
	case len(wrong) == 0 && c.self() == nil:
		refuse("cluster-name", "'%s' is not in --cluster %s", c.ClusterName, c.Cluster)
	}
	if c.Durability != durabilityAlways {
		refuse("durability", "--cluster needs %s: with %s a member could forget what it has acknowledged to the others", durabilityAlways, c.Durability)
	}
	if c.RecoveryDelay != 0 {
		refuse("recovery-delay", "it has no effect with --cluster: a member with a new data directory gets the leases from the others")
	}
	if c.ClusterAnnounce != "" {
		announced, wrong := peers(c.ClusterAnnounce)
		if slices.ContainsFunc(members, func(p cluster.Peer) bool { return find(announced, p.Name) == nil }) || len(announced) > len(members) {
			wrong = append(wrong, fmt.Errorf("it must name the members of --cluster %s", c.Cluster))
		}
		for _, err := range wrong {
			refuse("cluster-announce", "%w", err)
		}
	}
	c.checkClusterTLS(members, refuse)
	if c.ClusterHeartbeat < minHeartbeat || c.ClusterHeartbeat > maxElection/heartbeats {
		refuse("cluster-heartbeat", "%v is out of range, %v to %v", c.ClusterHeartbeat, minHeartbeat, maxElection/heartbeats)
	} else if least := heartbeats * c.ClusterHeartbeat; c.ClusterElection < least || c.ClusterElection > maxElection {
		refuse("cluster-election", "%v is out of range, %v (%d times --cluster-heartbeat) to %v", c.ClusterElection, least, heartbeats, maxElection)
	}
}

func (c *config) checkClusterTLS(peers []cluster.Peer, refuse func(name, format string, args ...any)) {
	if c.ClusterCertFile+c.ClusterKeyFile+c.ClusterCACertFile != "" {
		for _, f := range c.clusterFiles() {
			if f.Path == "" {
				refuse(f.Setting, "it is missing: TLS between members needs the certificate, its key and the authorities")
			}
		}
		return
	}
	if c.ClusterInsecure {
		return
	}
	for _, p := range peers {
		if public, _ := isPublic(p.Addr); public {
			refuse("cluster", "member %s is reached at %s over a network: set --cluster-cert-file, --cluster-key-file and --cluster-ca-cert-file, or --cluster-insecure to trust everybody who reaches it", p.Name, p.Addr)
			return
		}
	}
}

func (c *config) clusterFiles() [3]credentials.File {
	return [...]credentials.File{
		{Setting: "cluster-ca-cert-file", Path: c.ClusterCACertFile},
		{Setting: "cluster-cert-file", Path: c.ClusterCertFile},
		{Setting: "cluster-key-file", Path: c.ClusterKeyFile},
	}
}

// clusterTLS reads the files with which members identify each other. It returns nil if c does not
// name all of them.
func (c *config) clusterTLS() (*tlsFiles, error) {
	f := c.clusterFiles()
	if c.Cluster == "" || f[0].Path == "" || f[1].Path == "" || f[2].Path == "" {
		return nil, nil
	}
	config, expire, err := credentials.TLS(f[0], f[1], f[2], "")
	if err != nil {
		return nil, err
	}
	config.MinVersion = tls.VersionTLS13
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, config.RootCAs
	return &tlsFiles{config, expire}, nil
}
