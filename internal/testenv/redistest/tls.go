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

	"github.com/sidingq/siding/internal/testenv/proc"
)

// ServerName is the only name in the certificates of an [Authority]. Clients call a server by
// its address, and must ask for this name.
const ServerName = "redis.test"

// An Authority issues certificates for servers with TLS and their clients.
type Authority struct {
	// File is the authority's own certificate, in PEM, for those who trust it.
	File string

	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64
}

// NewAuthority makes an authority that nobody trusts yet.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir()}
	a.File, _ = a.certify(tb, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "redistest"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	return a
}

// Issue makes a certificate for [ServerName], good for a server and for a client. The results are
// the files, in PEM, of the certificate and of its key.
func (a *Authority) Issue(tb testing.TB) (certFile, keyFile string) {
	tb.Helper()
	return a.certify(tb, &x509.Certificate{
		DNSNames:    []string{ServerName},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// certify signs a certificate, and returns its file and that of its key. The first certificate
// is the authority's own.
func (a *Authority) certify(tb testing.TB, cert *x509.Certificate) (certFile, keyFile string) {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	a.issued++
	cert.SerialNumber, cert.NotAfter = big.NewInt(a.issued), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	if a.cert == nil {
		a.cert, a.key = cert, key
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	write := func(kind string, der []byte) string {
		path := filepath.Join(a.dir, fmt.Sprint(a.issued, kind, ".pem"))
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("CERTIFICATE", certDER), write("PRIVATE KEY", keyDER)
}

// StartTLS is [Start] for a server that speaks TLS alone, with a certificate of a. The server
// wants one of its clients, too, unless args have "--tls-auth-clients", "no".
func StartTLS(tb testing.TB, a *Authority, args ...string) *Server {
	tb.Helper()
	certFile, keyFile := a.Issue(tb)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		tb.Fatal(err)
	}
	authority, err := os.ReadFile(a.File)
	if err != nil {
		tb.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	own := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: ServerName, RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	args = append(args, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", a.File)
	s, err := run(tb.Context(), own, args)
	return proc.ForTest(tb, s, err)
}
