// A real OpenID Connect provider on loopback for the sign-in tests. Its development pages take any user name.
//   PORT REDIRECT_URI ALG=RS256|ES256 CLAIMS=userinfo|id_token AUTH=post|basic  node provider.mjs
import { Provider } from 'oidc-provider';
import { generateKeyPairSync, randomBytes } from 'node:crypto';

const port = Number(process.env.PORT);
const issuer = `http://127.0.0.1:${port}`;
const key = (type, options) => ({
    ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), kid: randomBytes(8).toString('hex'), use: 'sig',
});

const provider = new Provider(issuer, {
    clients: [{
        client_id: 'abies',
        client_secret: 'a secret: of & = %',
        token_endpoint_auth_method: process.env.AUTH === 'basic' ? 'client_secret_basic' : 'client_secret_post',
        grant_types: ['authorization_code'],
        response_types: ['code'],
        redirect_uris: [process.env.REDIRECT_URI],
        id_token_signed_response_alg: process.env.ALG || 'RS256',
    }],
    clientAuthMethods: [process.env.AUTH === 'basic' ? 'client_secret_basic' : 'client_secret_post'],
    jwks: { keys: [key('rsa', { modulusLength: 2048 }), key('ec', { namedCurve: 'P-256' })] },
    cookies: { keys: [randomBytes(16).toString('hex')] },
    pkce: { required: () => true },
    conformIdTokenClaims: process.env.CLAIMS !== 'id_token',
    claims: { openid: ['sub', 'preferred_username'] },
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: id }) }),
    ttl: { AuthorizationCode: 60, AccessToken: 600, IdToken: 600, Interaction: 600, Session: 600, Grant: 600 },
    features: { devInteractions: { enabled: true } },
});
provider.on('server_error', (ctx, err) => console.error(err));
const server = provider.listen(port, '127.0.0.1', () => console.log(`ready ${issuer}`));
process.on('SIGTERM', () => { server.close(() => process.exit(0)); server.closeAllConnections(); });
