package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// ServerName is the only name in a [Certificate]. Clients call a server by its address, and must ask for this name.
const ServerName = "redis.test"

// A Certificate is good for a server and for a client, for those who trust it: it has signed itself.
type Certificate struct {
	// File has the certificate, and KeyFile its key, in PEM.
	File, KeyFile string
}

// NewCertificate makes a certificate that nobody trusts yet.
func NewCertificate(tb testing.TB) Certificate {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: tb.Name()},
		DNSNames:              []string{ServerName},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	dir := tb.TempDir()
	c := Certificate{File: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	must(os.WriteFile(c.File, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER}), 0o600))
	must(os.WriteFile(c.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return c
}

// StartTLS is [Start] for a server that speaks TLS alone, with the certificate. The server wants a client to have it,
// too, unless args have "--tls-auth-clients", "no".
func StartTLS(tb testing.TB, c Certificate, args ...string) *Server {
	tb.Helper()
	pair, err := tls.LoadX509KeyPair(c.File, c.KeyFile)
	if err != nil {
		tb.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	own := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: ServerName, RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	args = append(args, "--tls-cert-file", c.File, "--tls-key-file", c.KeyFile, "--tls-ca-cert-file", c.File)
	s, err := run(tb.Context(), own, args)
	return proc.ForTest(tb, s, err)
}
