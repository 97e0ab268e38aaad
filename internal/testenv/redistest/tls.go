package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ServerName is the only name in the certificates that an [Authority] issues:
// clients, who call a server by its address, must ask for it.
const ServerName = "redis.test"

// An Authority issues certificates for servers with TLS and their clients.
type Authority struct {
	// File is its own certificate, in PEM, for those who are to trust it.
	File string

	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64
}

// NewAuthority makes an authority that nobody trusts yet.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "redistest"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.File = a.write(tb, "authority.pem", "CERTIFICATE", der)
	return a
}

// Issue makes a certificate for [ServerName], good for a server and for a
// client, and returns the files, in PEM, of it and of its key.
func (a *Authority) Issue(tb testing.TB) (certFile, keyFile string) {
	tb.Helper()
	key := newKey(tb)
	a.issued++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.issued),
		DNSNames:     []string{ServerName},
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return a.write(tb, fmt.Sprintf("%d.pem", a.issued), "CERTIFICATE", der),
		a.write(tb, fmt.Sprintf("%d.key", a.issued), "PRIVATE KEY", keyDER)
}

// StartTLS runs a redis-server that speaks TLS alone, with a certificate of a's,
// until the test's cleanup; see [Start]. It wants such a certificate of its
// clients, too, unless args hold "--tls-auth-clients", "no".
func StartTLS(tb testing.TB, a *Authority, args ...string) *Server {
	tb.Helper()
	certFile, keyFile := a.Issue(tb)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		tb.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(a.cert)
	own := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: ServerName, RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	args = append(args, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", a.File)
	s := start(tb, own, args)
	tb.Cleanup(func() { s.StopAfter(tb) })
	return s
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// write returns the path of a new PEM file in a's folder.
func (a *Authority) write(tb testing.TB, name, kind string, der []byte) string {
	tb.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
