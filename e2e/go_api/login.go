package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"time"

	"github.com/hashicorp/nomad/api"
)

// login stores a method for JWTs of an own key, and logs in by it.
func login(told report, address string, root, anonymous *api.Client) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	method, _, err := root.ACLAuthMethods().Create(&api.ACLAuthMethod{
		Name: "ci", Type: "JWT", TokenLocality: "local", MaxTokenTTL: 10 * time.Minute, Default: true,
		Config: &api.ACLAuthMethodConfig{
			JWTValidationPubKeys: []string{public}, BoundAudiences: []string{"yurt"}, BoundIssuer: []string{"go"},
			ClaimMappings: map[string]string{"team": "team"}, ClockSkewLeeway: 30 * time.Second,
		},
	}, nil)
	told.check("auth method", err, err == nil && method.Config.ClockSkewLeeway == 30*time.Second)
	rule, _, err := root.ACLBindingRules().Create(&api.ACLBindingRule{
		AuthMethod: "ci", Selector: "value.team==blue", BindType: "policy", BindName: "reader",
	}, nil)
	told.check("binding rule", err, err == nil && rule.ID != "")
	listed, _, err := anonymous.ACLAuthMethods().List(nil)
	told.check("auth method list without a token", err, len(listed) == 1 && listed[0].Default)

	claims := map[string]any{"iss": "go", "aud": "yurt", "team": "blue", "exp": time.Now().Add(time.Minute).Unix()}
	request := &api.ACLLoginRequest{AuthMethodName: "ci", LoginToken: signed(key, claims)}
	made, _, err := anonymous.ACLAuth().Login(request, nil)
	told.check("login", err, err == nil && made.ExpirationTTL == 10*time.Minute && made.Policies[0] == "reader")
	if err == nil {
		_, _, err = client(address, made.SecretID).Jobs().List(&api.QueryOptions{Namespace: team})
		told.add("list with the token of a login", err)
	}
	claims["team"] = "red"
	_, _, err = anonymous.ACLAuth().Login(&api.ACLLoginRequest{AuthMethodName: "ci", LoginToken: signed(key, claims)}, nil)
	told.add("login of another team", err)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	request.LoginToken = signed(other, claims)
	_, _, err = anonymous.ACLAuth().Login(request, nil)
	told.add("login by another key", err)
	_, _, err = anonymous.ACLAuth().GetAuthURL(&api.ACLOIDCAuthURLRequest{AuthMethodName: "ci"}, nil)
	told.add("auth url without its parts", err)
}

func signed(key *rsa.PrivateKey, claims map[string]any) string {
	body := encoded(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + encoded(claims)
	digest := sha256.Sum256([]byte(body))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err)
	}
	return body + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encoded(part map[string]any) string {
	text, err := json.Marshal(part)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
